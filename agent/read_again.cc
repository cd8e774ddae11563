// SPDX-License-Identifier: Apache-2.0
#include "agent/read_again.h"

#include <cstdio>
#include <cstdlib>

#include "common/base/file.h"
#include "common/base/printable.h"
#include "trainer/checkpoint/confirm.h"

namespace hpctl::agent {
namespace {

constexpr size_t kLineBytes = 1'024;
constexpr size_t kArguments = 7;

Outcome check_still_there(const ClaimedDamage& claim) {
  const std::string record =
      claim.directory + "/generations/" + std::to_string(claim.generation) + ".json";
  HP_TRY_ASSIGN(const bool there, entry_exists(record));
  if (there) return Ok{};
  return Error{ErrorCode::kStorage, record + " is not there"};
}

std::string in_one_line(const Result<std::string>& damage) {
  if (!damage.ok()) return std::string(kSaysUnreadable) + " " + damage.error().message;
  return damage->empty() ? kSaysSound : std::string(kSaysDamaged) + " " + *damage;
}

}  // namespace

Result<std::string> read_again(const ClaimedDamage& claim) {
  HP_TRY(check_still_there(claim));
  HP_TRY_ASSIGN(std::string damage,
                confirm_damage(claim.directory + "/" + claim.checkpoint, claim.words, claim.part));
  if (!damage.empty()) HP_TRY(check_still_there(claim));
  return damage;
}

int run_confirm(const std::vector<std::string>& arguments) {
  if (arguments.size() != kArguments) return 2;
  const auto number = [&](size_t i) { return std::strtoull(arguments[i].c_str(), nullptr, 10); };
  const ClaimedDamage claim{
      arguments[0], arguments[1], number(2), {arguments[3], number(4), number(5), 0}, arguments[6]};
  const std::string line = printable_line(in_one_line(read_again(claim)), kLineBytes);
  return std::puts(line.c_str()) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
}

}  // namespace hpctl::agent
