// SPDX-License-Identifier: Apache-2.0
// hptrain: one worker of a training job. Started by an agent (descriptors of worker_abi.h) or
// manually (--workload FILE). This program is small and starts at once: it shows itself in the
// progress block, reads the workload, fixes the environment, and only then loads LibTorch with the
// engine.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/worker/workload.h"
#include "trainer/process/engine.h"
#include "trainer/process/engine_library.h"
#include "trainer/process/pin_environment.h"
#include "trainer/process/progress.h"
#include "trainer/process/request.h"
#include "trainer/process/workload_check.h"

namespace hpctl {
namespace {

constexpr char kUsage[] =
    "hptrain - trains one rank of a model\n"
    "\n"
    "usage: hptrain                   started by an agent: workload, progress page, state\n"
    "                                 arena and control socket on descriptors 3 to 6; an\n"
    "                                 empty workload: a standby, which waits for one on 6\n"
    "       hptrain --workload FILE   FILE is the JSON document of one rank; start one\n"
    "                                 process per rank, all with the same rendezvous_dir\n"
    "       hptrain --request JSON    evaluate a checkpoint, or generate text with it: what\n"
    "                                 hpctl eval and hpctl generate run\n"
    "       hptrain --version | --help\n"
    "\n"
    "exit codes: 0 finished, 93 do not restart (the input is wrong), 94 the checkpoint is\n"
    "            damaged, 95 a peer went away and no control socket says what follows,\n"
    "            96 storage cannot be read now, other: unknown fault\n"
    "SIGTERM to any rank: all end after the step under way with a checkpoint of it, by SIGTERM;\n"
    "                     to one that does not train, and to a standby: it ends at once\n";

int print_version() {
  pin_environment();
  const auto library = load_engine();
  if (!library.ok()) log_error(library.error().message);
  if (!library.ok()) return 1;
  const auto versions = engine_entry<EngineVersionFunction>(*library, kEngineVersionEntry);
  std::printf("hptrain %s, %s\n", HPCTL_VERSION, versions.ok() ? (*versions)() : "unknown engine");
  return 0;
}

// Descriptor 3, or FILE for a manual start. nullopt: empty, this is a standby.
Result<std::optional<Workload>> read_workload(const std::string& file) {
  HP_TRY_ASSIGN(const std::string text, read_file(file.empty() ? "/proc/self/fd/3" : file));
  if (file.empty() && text.empty()) return std::optional<Workload>();
  HP_TRY_ASSIGN(Workload workload, workload_from_json(text));
  HP_TRY(check_workload(workload));
  return std::optional(std::move(workload));
}

Result<int> train(const std::string& workload_file, Progress& progress) {
  const bool by_hand = !workload_file.empty();
  HP_TRY_ASSIGN(const std::optional<Workload> workload, read_workload(workload_file));
  set_log_component(workload ? "rank " + std::to_string(workload->rank) : "standby");
  pin_environment();
  HP_TRY_ASSIGN(void* const library, workload ? load_engine() : load_engine_yielding(kControlFd));
  HP_TRY_ASSIGN(EngineFunction* const run, engine_entry<EngineFunction>(library, kEngineEntry));
  return run(workload ? &*workload : nullptr, progress, by_hand ? -1 : kArenaFd,
             by_hand ? -1 : kControlFd);
}

int main_with(const std::string& workload_file) {
  auto progress = Progress::attach(workload_file.empty() ? kProgressFd : -1);
  if (!progress.ok()) {
    log_error(progress.error().message + "; to start hptrain yourself, use --workload FILE");
    return kExitDoNotRestart;
  }
  const Result<int> code = train(workload_file, *progress);
  if (code.ok()) return *code;
  log_error(code.error().message);
  progress->last_words(code.error().message);
  // An engine that cannot be loaded is this machine's, or an upgrade is under way.
  return code.error().code == ErrorCode::kInvalidArgument ? kExitDoNotRestart : 1;
}

}  // namespace
}  // namespace hpctl

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  hpctl::set_log_component("hptrain");
  const std::string_view option = argc > 1 ? argv[1] : "";
  const bool help = argc == 2 && (option == "--help" || option == "-h");
  if (help) return std::fputs(hpctl::kUsage, stdout) < 0 ? 1 : 0;
  if (argc == 2 && option == "--version") return hpctl::print_version();
  if (argc == 3 && option == "--request") _exit(hpctl::print_answer(argv[2]));
  const bool by_hand = argc == 3 && option == "--workload";
  if (argc != 1 && !by_hand) {
    std::fprintf(stderr, "hptrain: unexpected argument; see hptrain --help\n");
    return hpctl::kExitDoNotRestart;
  }
  hpctl::ask_for_huge_pages(argv);
  const int code = hpctl::main_with(by_hand ? argv[2] : "");
  // At once: no destructors of LibTorch, which take long and serve nothing here.
  _exit(code);
}
