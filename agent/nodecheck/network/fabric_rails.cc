// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/network/fabric_rails.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "agent/holder/spawn.h"
#include "agent/nodecheck/network/messages.h"
#include "common/base/fd.h"
#include "common/base/json.h"
#include "common/net/frame.h"

namespace hpctl::agent {
namespace {

constexpr size_t kMostRails = 32;  // EFA devices of the largest instances

// Ends the process of a transfer in any state. Returns how it had ended by itself, for people.
std::string end_transfer(pid_t pid) {
  ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
    return "libfabric crashed: signal " + std::to_string(WTERMSIG(status));
  }
  return "libfabric did not come back in time";
}

}  // namespace

Result<std::vector<FabricDomain>> fabric_rails(const std::string& own_ip) {
  HP_TRY_ASSIGN(std::vector<FabricDomain> domains, chosen_domains(own_ip));
  const std::string provider = domains.front().provider;
  // Other addresses of the node, and other providers, are other ways than the chosen one.
  std::erase_if(domains, [&](const FabricDomain& domain) { return domain.provider != provider; });
  domains.resize(std::min(domains.size(), provider.starts_with("efa") ? kMostRails : 1));
  return domains;
}

void FabricRails::open(const std::string& own_ip, NodeMeans& means) {
  own_ip_ = own_ip;
  const auto rails = fabric_rails(own_ip);
  if (!rails.ok()) {
    means.fabric_trouble = rails.error().message;
    return;
  }
  means.fabric = rails->front().provider;
  network_ = {"libfabric " + fabric_version(), means.fabric, ""};
  if (means.fabric.starts_with("efa")) return;
  const auto efa = fabric_domains("efa");
  means.fabric_trouble = efa.ok() ? "" : efa.error().message;
  network_.trouble = means.fabric_trouble;
}

Result<Transfer> FabricRails::try_to_exchange(int connection, bool dialled) const {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return errno_error("cannot make a pair of sockets");
  }
  const UniqueFd answers(ends[0]);
  UniqueFd of_child(ends[1]);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  SpawnPlan plan;
  plan.program = program_;
  plan.argv = {
      program_, "check", "network", "--fabric", own_ip_, "--dialled", dialled ? "yes" : "no"};
  plan.env = environment_with({});
  static_assert(kFabricPairSocket == 3 && kFabricAnswerSocket == 4);
  plan.descriptors = {null.get(), null.get(), null.get(), connection, of_child.get()};
  HP_TRY_ASSIGN(const SpawnedProcess process, spawn_process(plan));
  of_child.reset();
  const auto answer = read_frame(answers.get(), frame_deadline(kFabricTransferLimit));
  const std::string end = end_transfer(process.pid);
  if (!answer.ok()) return Transfer{0, end, ""};
  try {
    const auto message = parse_message(*answer);
    return Transfer{message.at("bytes_per_s").get<double>(), message.value("trouble", ""),
                    message.value("wrong", "")};
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, std::string("this message cannot be read: ") + e.what()};
  }
}

Transfer FabricRails::exchange_with_peer(int connection, bool dialled) const {
  const auto transfer = try_to_exchange(connection, dialled);
  return transfer.ok() ? *transfer : Transfer{0, transfer.error().message, ""};
}

}  // namespace hpctl::agent
