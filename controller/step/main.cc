// SPDX-License-Identifier: Apache-2.0
// hpcontroller-step: the controller of one Slurm step. srun's plugin starts it and hands it two
// descriptors; people never do.
#include <fcntl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/base/log.h"
#include "common/base/quantity.h"
#include "common/process/descriptor_limit.h"
#include "common/process/log_writer.h"
#include "controller/step/step_server.h"

namespace {

constexpr char kUsage[] = R"(usage: hpcontroller-step LISTENER LIFELINE RUN_ID [no-input]

Decides about restarts of the tasks of one Slurm step (docs/auto-resume.md); srun's plugin starts
it.

  LISTENER  descriptor of a listening TCP socket
  LIFELINE  descriptor of a pipe; its end is the end of srun
  RUN_ID    JOB.STEP
  no-input  srun has no standard input for the tasks

Environment: SLURM_HPCTL_STEP_TOKEN, HPCTL_MAX_RESTARTS (default 20), HPCTL_HANG_TIMEOUT (auto, off
or a duration such as 30m; default auto). The shim of each task reads HPCTL_STANDBY_IMPORTS (modules
with commas between; default none).
)";

constexpr int64_t kLastLogMs = 2'000;

int64_t max_restarts() {
  constexpr int64_t kDefault = 20;
  const char* text = std::getenv("HPCTL_MAX_RESTARTS");
  if (text == nullptr) return kDefault;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end != text && *end == '\0' && value >= 0 && value <= 1'000'000) return value;
  std::fprintf(stderr, "hpctl: HPCTL_MAX_RESTARTS=%s is not a number from 0 to 1000000; using 20\n",
               text);
  return kDefault;
}

int64_t hang_timeout_ms() {
  constexpr int64_t kAuto = 0;
  const char* text = std::getenv("HPCTL_HANG_TIMEOUT");
  if (text == nullptr || std::string_view(text) == "auto") return kAuto;
  if (std::string_view(text) == "off") return hpctl::step::kNoHangTimeoutMs;
  const auto given = hpctl::parse_duration_ms(text);
  if (given.ok() && *given > 0) return *given;
  std::fprintf(
      stderr,
      "hpctl: HPCTL_HANG_TIMEOUT=%s is neither auto, off nor a duration such as 90s, 30m or "
      "1h; using auto\n",
      text);
  return kAuto;
}

}  // namespace

int main(int argc, char** argv) {
  const char* token = std::getenv(hpctl::step::kTokenName);
  const bool has_input = argc < 5 || std::string_view(argv[4]) != "no-input";
  if (argc < 4 || argc > 5 || token == nullptr) {
    std::fputs(kUsage, argc == 2 && std::string(argv[1]) == "--help" ? stdout : stderr);
    return argc == 2 && std::string(argv[1]) == "--help" ? 0 : 2;
  }
  const int listener = std::atoi(argv[1]);
  if (::fcntl(listener, F_SETFL, O_NONBLOCK) != 0) {
    std::perror("hpcontroller-step: listener");
    return 1;
  }
  std::signal(SIGPIPE, SIG_IGN);
  hpctl::LogWriter log;
  if (const auto started = log.start(hpctl::OwnLog::kThroughWriter); !started.ok()) {
    hpctl::log_text("hpcontroller-step: " + started.error().message + "\n");
  }
  hpctl::raise_descriptor_limit();
  hpctl::step::StepServer server(hpctl::UniqueFd(listener), hpctl::UniqueFd(std::atoi(argv[2])),
                                 token, {argv[3], max_restarts(), hang_timeout_ms(), has_input});
  server.run();
  log.finish(kLastLogMs);
  return 0;
}
