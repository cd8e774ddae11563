// SPDX-License-Identifier: Apache-2.0
// hpagent: the per-node program. `--holder` is what a scheduler starts; the other modes are started
// by the holder itself.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "agent/agent.h"
#include "agent/arguments.h"
#include "agent/holder/holder.h"
#include "agent/holder/local_programs.h"
#include "agent/holder/reaper.h"
#include "agent/nodecheck/check.h"
#include "agent/read_again.h"
#include "common/base/log.h"

namespace {

using hpctl::agent::Arguments;
using hpctl::agent::is_copy;
using hpctl::agent::job_of;
using hpctl::agent::paths_of;

// `program`: what the agent and the reaper are started from.
int run_holder(const Arguments& arguments, const std::string& directory,
               const std::string& program) {
  hpctl::holder::HolderOptions options{paths_of(arguments),    job_of(arguments),
                                       arguments.at("--node"), {program, "--agent"},
                                       {program, "--reaper"},  directory + "/hpstacks"};
  for (const auto& [name, value] : arguments) {
    options.agent_argv.insert(options.agent_argv.end(), {name, value});
  }
  hpctl::set_log_component("holder " + options.node);
  return hpctl::holder::run_holder(options);
}

int run_agent(const Arguments& arguments, const std::string& directory,
              const std::string& program) {
  hpctl::set_log_component("agent " + arguments.at("--node"));
  const auto limit = arguments.find("--alive-limit");
  const unsigned long limit_ms =
      limit == arguments.end() ? 0 : std::strtoul(limit->second.c_str(), nullptr, 10);
  const std::string data_directory =
      is_copy(arguments) ? std::filesystem::path(program).parent_path().string() : directory;
  return hpctl::agent::run_agent({paths_of(arguments), job_of(arguments), arguments.at("--node"),
                                  directory, HPCTL_VERSION, data_directory, program,
                                  static_cast<uint32_t>(limit_ms)});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--help") return std::fputs(hpctl::agent::kUsage, stdout) < 0 ? 1 : 0;
  if (mode == "--version") return std::puts("hpagent " HPCTL_VERSION) < 0 ? 1 : 0;
  // Holders of 0.1.0 say --guardian.
  if ((mode == "--reaper" || mode == "--guardian") && argc == 3) {
    hpctl::set_log_component("reaper");
    return hpctl::holder::run_reaper(argv[2]);
  }
  if (mode == "confirm") return hpctl::agent::run_confirm({argv + 2, argv + argc});
  const Arguments arguments = hpctl::agent::parse(argc, argv);
  if (is_copy(arguments)) hpctl::set_program_directory(arguments.at("--programs"));
  const auto directory = hpctl::program_directory();
  if (!directory.ok()) {
    std::fprintf(stderr, "hpagent: %s\n", directory.error().message.c_str());
    return 1;
  }
  if (mode == "check") return hpctl::agent::run_check({argv + 2, argv + argc}, *directory);
  if (mode == "--holder" && is_copy(arguments)) return run_holder(arguments, *directory, argv[0]);
  if (mode == "--holder" && !arguments.empty()) {
    std::vector<std::string> again(argv, argv + argc);
    again.insert(again.end(), {"--programs", *directory});
    hpctl::holder::run_from_local_copy(std::move(again));
    return run_holder(arguments, *directory, *directory + "/hpagent");
  }
  if (mode == "--agent" && !arguments.empty()) return run_agent(arguments, *directory, argv[0]);
  std::fputs("hpagent: wrong arguments; see hpagent --help\n", stderr);
  return 2;
}
