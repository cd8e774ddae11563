// SPDX-License-Identifier: Apache-2.0
// tests/slurm/cluster from C++: one cluster per test program, gone when the program ends.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <thread>

namespace hpctl::test {

struct CommandResult {
  int code = -1;
  std::string out;  // stdout
};

inline CommandResult run_command(const std::string& command) {
  CommandResult result;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer{};
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    result.out.append(buffer.data(), n);
  }
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

// Polls for a state of Slurm's, which has no event to wait on.
inline bool await(const std::function<bool()>& reached, int seconds = 120) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!reached()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return true;
}

// The exports of the cluster become this program's environment.
class SlurmCluster {
 public:
  // Exit code 77 of `cluster up`: this machine cannot run one.
  static constexpr int kCannotRun = 77;

  explicit SlurmCluster(const std::string& options) {
    const auto up = command("up " + options + " --owner " + std::to_string(::getpid()));
    code_ = up.code;
    std::istringstream words(up.out);  // "export NAME=value NAME=value"
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) continue;
      ::setenv(word.substr(0, equals).c_str(), word.substr(equals + 1).c_str(), 1);
    }
  }
  ~SlurmCluster() { command("down"); }
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  int code() const { return code_; }
  static CommandResult command(const std::string& arguments) {
    return run_command(std::string(HPCTL_SLURM_CLUSTER) + " " + arguments);
  }
  static void must(const std::string& arguments) {
    ASSERT_EQ(command(arguments).code, 0) << "cluster " << arguments;
  }

 private:
  int code_ = -1;
};

}  // namespace hpctl::test
