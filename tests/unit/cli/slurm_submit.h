// SPDX-License-Identifier: Apache-2.0
// The real hpctl program where Slurm schedules. Slurm is an hpslurm that tells what the test wrote.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "common/base/json.h"
#include "common/slurm/slurm_messages_json.h"
#include "controller/publish/status_files.h"
#include "tests/integration/local_cluster.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {

inline constexpr const char* kSlurmJob =
    "name: c\nnodes: 2\nworkload: {command: [sh, -c, 'true']}\n";

class SlurmSubmit : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(bin());
    std::filesystem::create_directory(slurm());
    const char* built = std::getenv("HPCTL_BIN");
    ASSERT_NE(built, nullptr) << "run by ctest, or set HPCTL_BIN to build/PRESET/bin";
    std::filesystem::copy_file(std::string(built) + "/hpctl", bin() + "/hpctl");
    std::filesystem::copy_file(std::string(built) + "/../tests/fake_hpslurm", bin() + "/hpslurm");
    for (const char* name : {"hpcontroller", "hpagent", "hptrain"}) {
      write(bin() + "/" + name, "");
      ASSERT_EQ(::chmod((bin() + "/" + name).c_str(), 0755), 0);
    }
    write(home_.directory() + "/job.yaml", kSlurmJob);
  }

  std::string bin() const { return home_.directory() + "/bin"; }
  std::string slurm() const { return home_.directory() + "/slurm"; }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  static std::string text_of(const std::string& path) { return read_file(path).value(); }

  CommandResult hpctl(std::vector<std::string> words) {
    words.insert(words.begin(), bin() + "/hpctl");
    return run_command(words, {"FAKE_HPSLURM=" + slurm()});
  }
  CommandResult submit(const std::vector<std::string>& options = {},
                       const std::vector<std::string>& environment = {}) {
    std::vector<std::string> words = {bin() + "/hpctl", "submit", home_.directory() + "/job.yaml"};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<std::string> variables = {"FAKE_HPSLURM=" + slurm()};
    variables.insert(variables.end(), environment.begin(), environment.end());
    return run_command(words, variables);
  }
  // What Slurm says of job 100 from now on.
  void slurm_says(const std::string& state, const std::string& reason = "None") {
    SlurmJob job;
    job.id.value = 100;
    job.state = state;
    job.reason = reason;
    job.end_time_s = 1'763'700'000;
    write(slurm() + "/job-100.json", nlohmann::json(job).dump());
  }
  // What the controller of job 100 has written of it last.
  void controller_says(const std::string& state, const std::string& reason = "") {
    JobView view;
    view.job = 100;
    view.name = "c";
    view.state = state;
    view.reason = reason;
    ASSERT_TRUE(write_status(home_.paths(), view).ok());
  }
  std::string state_of(const std::string& job) {
    const CommandResult result = hpctl({"status", job, "--json"});
    if (result.exit_code != 0) return result.err;
    const auto status = nlohmann::json::parse(result.out);
    return status.at("state").get<std::string>() + " " + status.at("reason").get<std::string>();
  }
  std::vector<std::string> job_directories() const {
    const std::string jobs = home_.paths().home() + "/jobs";
    return is_accessible(jobs) ? list_directory(jobs).value() : std::vector<std::string>{};
  }

  ScopedHome home_;
};

}  // namespace hpctl::testing
