// SPDX-License-Identifier: Apache-2.0
// A standby whose engine does not come to an end of being loaded, and what priority it has
// meanwhile: hptrain in a directory of its own, where a pipe that nobody writes to has the name of
// its engine.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/fd.h"
#include "common/process/process_stat.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/trainer/worker_process.h"
#include "trainer/process/engine.h"

namespace hpctl::testing {

// Of a thread, as /proc has it.
inline std::string nice_value(pid_t thread) {
  constexpr int kNiceField = 19;
  return process_stat(thread, kNiceField);
}

// Of all threads of a process but those that end: one that was joined may yet be there.
inline std::vector<std::string> nice_values(pid_t pid) {
  std::vector<std::string> values;
  const std::string threads = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& thread : std::filesystem::directory_iterator(threads)) {
    const pid_t tid = std::stoi(thread.path().filename());
    if (is_exiting(tid)) continue;
    const std::string value = nice_value(tid);
    if (!value.empty()) values.push_back(value);
  }
  return values;
}

class SlowEngine {
 public:
  SlowEngine() {
    std::filesystem::copy_file(programs_ + "/hptrain", directory_ / "hptrain");
    HP_CHECK(mkfifo(path_.c_str(), 0600) == 0);
  }

  std::unique_ptr<WorkerProcess> start_standby() const {
    HP_CHECK(setenv("HPCTL_BIN", directory_.path().c_str(), 1) == 0);
    auto standby = std::make_unique<WorkerProcess>("");
    HP_CHECK(setenv("HPCTL_BIN", programs_.c_str(), 1) == 0);
    return standby;
  }

  // Somebody reads it, and waits.
  bool is_being_loaded() {
    held_.reset(open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    return held_.valid();
  }

  // For who loads it from now on; who reads the other still waits.
  void put_the_real_one() const {
    std::filesystem::remove(path_);
    std::filesystem::create_symlink(programs_ + "/" + kEngineLibrary, path_);
  }

 private:
  const std::string programs_ = std::getenv("HPCTL_BIN");
  TemporaryDirectory directory_;
  const std::string path_ = directory_ / kEngineLibrary;
  UniqueFd held_;
};

}  // namespace hpctl::testing
