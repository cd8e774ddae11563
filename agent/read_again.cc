// SPDX-License-Identifier: Apache-2.0
#include "agent/read_again.h"

#include <cstdio>
#include <cstdlib>

#include "common/base/printable.h"
#include "common/job/job_spec.h"
#include "trainer/checkpoint/confirm.h"

namespace hpctl::agent {
namespace {

constexpr size_t kLineBytes = 1'024;
constexpr size_t kArguments = 8;

Outcome check_still_there(const ReadingOrder& order) {
  if (order.generation != 0) return check_in_place(order.directory, order.generation);
  return check_path_in_place(order.directory + "/" + order.checkpoint);
}

// "" = it is sound, as far as `depth` looks.
Result<std::string> verify(const std::string& step_dir, VerifyDepth depth) {
  const Outcome sound = confirm_checkpoint(step_dir, depth, [] { return true; });
  if (sound.ok()) return std::string();
  if (sound.error().code == ErrorCode::kDataLoss) return sound.error().message;
  return sound.error();
}

Result<std::string> read_ordered(const ReadingOrder& order) {
  const std::string step_dir = order.directory + "/" + order.checkpoint;
  if (order.depth.empty()) return confirm_damage(step_dir, order.words, order.part);
  const auto depth = from_word<VerifyDepth>(order.depth);
  if (depth) return verify(step_dir, *depth);
  return Error{ErrorCode::kInvalidArgument, "this release does not know the depth " + order.depth};
}

std::string in_one_line(const Result<std::string>& damage) {
  if (!damage.ok()) return std::string(kSaysUnreadable) + " " + damage.error().message;
  return damage->empty() ? kSaysSound : std::string(kSaysDamaged) + " " + *damage;
}

}  // namespace

Result<std::string> read_again(const ReadingOrder& order) {
  HP_TRY(check_still_there(order));
  HP_TRY_ASSIGN(std::string damage, read_ordered(order));
  if (!damage.empty()) HP_TRY(check_still_there(order));
  return damage;
}

int run_confirm(const std::vector<std::string>& arguments) {
  if (arguments.size() != kArguments) return 2;
  const auto number = [&](size_t i) { return std::strtoull(arguments[i].c_str(), nullptr, 10); };
  const ReadingOrder order{arguments[0], arguments[1],
                           number(2),    {arguments[3], number(4), number(5), 0},
                           arguments[6], arguments[7]};
  const std::string line = printable_line(in_one_line(read_again(order)), kLineBytes);
  return std::puts(line.c_str()) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
}

}  // namespace hpctl::agent
