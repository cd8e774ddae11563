// SPDX-License-Identifier: Apache-2.0
// hpslurm: answers framed JSON requests on stdin through libslurm, one at a time, until stdin ends
// (common/slurm/hpslurm.h is its client). It keeps no state: libslurm may end this process at any
// call, and the client then starts another.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <map>

#include "common/base/bounded_json.h"
#include "common/base/fd.h"
#include "common/base/json_text.h"
#include "common/net/frame.h"
#include "common/slurm/slurm_messages_json.h"
#include "slurm-plugins/hpslurm/jobs.h"
#include "slurm-plugins/hpslurm/munge.h"
#include "slurm-plugins/hpslurm/nodes.h"
#include "slurm-plugins/hpslurm/slurm_compat.h"

namespace hpctl::slurm {
namespace {

using nlohmann::json;

Answer perform(const std::string& request) {
  static const std::map<std::string, Answer (*)(const json&)> calls = {
      {"version", version},
      {"ping", ping},
      {"submit", submit},
      {"job", load_job},
      {"jobs_by_comment", jobs_by_comment},
      {"cancel", cancel},
      {"complete", complete},
      {"signal", signal_job},
      {"requeue", requeue},
      {"keep_nodes", keep_nodes},
      {"nodes", load_nodes},
      {"update_node", update_node},
      {"reservations", load_reservations},
  };
  try {
    const json message = parse_json(request);
    const auto name = message.at("call").get<std::string>();
    const auto call = calls.find(name);
    if (call == calls.end()) {
      return Error{ErrorCode::kInvalidArgument, "hpslurm has no call " + name};
    }
    if (call->second != version) HP_TRY(check_munged());
    return call->second(message.at("arguments"));
  } catch (const json::exception& problem) {
    return Error{ErrorCode::kInvalidArgument, "not a request: " + std::string(problem.what())};
  }
}

std::string encode(const Answer& answer) {
  const json message =
      answer.ok()
          ? json{{"result", answer.value()}}
          : json{{"error", {{"kind", answer.error().code}, {"message", answer.error().message}}}};
  // Names and comments are whatever bytes people gave them.
  return json_text(message);
}

int serve() {
  // Whatever else prints to stdout must not get between the frames.
  const UniqueFd channel(::dup(STDIN_FILENO));
  if (!channel.valid() || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
  ::slurm_init(nullptr);
  for (;;) {
    const auto request = read_frame(channel.get(), kNoDeadline);
    if (!request.ok()) return request.error().code == ErrorCode::kNotFound ? 0 : 1;
    if (!write_frame(channel.get(), encode(perform(*request)), kNoDeadline).ok()) return 1;
  }
}

}  // namespace
}  // namespace hpctl::slurm

int main(int argc, char** argv) {
  if (argc != 1) {
    std::fprintf(stderr, "%s is started by hpctl and hpcontroller only\n", argv[0]);
    return 2;
  }
  // It ends when its client closes the stream. In a job Slurm's signals come to every process of
  // the step: a requeue that we asked for would end the call before the nodes are excluded.
  for (const int ignored : {SIGPIPE, SIGTERM, SIGINT}) ::signal(ignored, SIG_IGN);
  return hpctl::slurm::serve();
}
