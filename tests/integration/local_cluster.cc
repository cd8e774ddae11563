// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/local_cluster.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "common/base/file.h"
#include "common/process/pidfd.h"
#include "tests/support/processes.h"
#include "tests/support/promise.h"

namespace hpctl::testing {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

std::string program(const std::string& name) {
  const char* bin = std::getenv("HPCTL_BIN");
  HP_CHECK(bin != nullptr);
  return std::string(bin) + "/" + name;
}

int remaining_ms(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left);
}

// Reads what is there into `text`; false at end of file.
bool drain(int fd, std::string& text) {
  std::array<char, 65536> buffer{};
  const ssize_t n = ::read(fd, buffer.data(), buffer.size());
  if (n > 0) text.append(buffer.data(), static_cast<size_t>(n));
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

pid_t spawn(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
            int out, int err) {
  std::vector<std::string> env_text = environment;
  for (char** e = environ; *e != nullptr; ++e) env_text.emplace_back(*e);
  std::vector<char*> env;
  std::vector<char*> args;
  for (auto& e : env_text) env.push_back(e.data());
  env.push_back(nullptr);
  std::vector<std::string> copy = argv;
  for (auto& a : copy) args.push_back(a.data());
  args.push_back(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execve(args[0], args.data(), env.data());
  _exit(127);
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& argv,
                          const std::vector<std::string>& environment, milliseconds deadline) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  HP_CHECK(pipe2(out.data(), O_CLOEXEC) == 0 && pipe2(err.data(), O_CLOEXEC) == 0);
  const pid_t pid = spawn(argv, environment, out[1], err[1]);
  HP_CHECK(pid > 0);
  const UniqueFd out_read(out[0]);
  const UniqueFd err_read(err[0]);
  ::close(out[1]);
  ::close(err[1]);
  CommandResult result;
  const UniqueFd exited = open_pidfd(pid);
  const auto end = Clock::now() + deadline;
  std::array<pollfd, 3> polls{
      {{out_read.get(), POLLIN, 0}, {err_read.get(), POLLIN, 0}, {exited.get(), POLLIN, 0}}};
  // The exit decides, not end of file: a daemon started by the command may hold the pipes open.
  while (polls[2].revents == 0 && poll(polls.data(), polls.size(), remaining_ms(end)) > 0) {
    if (polls[0].revents != 0 && !drain(polls[0].fd, result.out)) polls[0].fd = -1;
    if (polls[1].revents != 0 && !drain(polls[1].fd, result.err)) polls[1].fd = -1;
  }
  const bool timed_out = polls[2].revents == 0;
  if (timed_out) kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  fcntl(out_read.get(), F_SETFL, O_NONBLOCK);
  fcntl(err_read.get(), F_SETFL, O_NONBLOCK);
  for (size_t before = 0; drain(out_read.get(), result.out) && before != result.out.size();) {
    before = result.out.size();
  }
  for (size_t before = 0; drain(err_read.get(), result.err) && before != result.err.size();) {
    before = result.err.size();
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (timed_out) result.exit_code = 124;
  return result;
}

bool wait_until(const std::string& directory, const std::function<bool()>& done,
                milliseconds deadline) {
  const auto end = Clock::now() + deadline;
  const UniqueFd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  const auto add = [&] {
    return inotify_add_watch(watch.get(), directory.c_str(),
                             IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE) >= 0;
  };
  bool watching = add();
  while (!done()) {
    if (remaining_ms(end) == 0) return done();
    if (!watching) watching = add();
    pollfd p{watch.get(), POLLIN, 0};
    poll(&p, 1, std::min(remaining_ms(end), 50));
    std::string ignored;
    drain(watch.get(), ignored);
  }
  return true;
}

LocalCluster::LocalCluster() : paths_(directory_.path() + "/home") {}

LocalCluster::~LocalCluster() {
  EXPECT_TRUE(end_marked_processes(mark())) << broken_promise("leftover");
  EXPECT_TRUE(remove_tree(paths_.socket_directory()).ok());
}

CommandResult LocalCluster::hpctl(const std::vector<std::string>& args,
                                  milliseconds deadline) const {
  std::vector<std::string> argv = {program("hpctl")};
  argv.insert(argv.end(), args.begin(), args.end());
  return run_command(argv, {mark()}, deadline);
}

JobId LocalCluster::submit(const std::string& yaml) {
  const std::string file = directory_.path() + "/job.yaml";
  EXPECT_TRUE(write_file_atomic(file, yaml).ok());
  const auto result = hpctl({"submit", "--local", "--json", file});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const json answer = json::parse(result.out, nullptr, false);
  if (answer.is_discarded() || !answer.contains("job")) return JobId{0};
  const json& job = answer["job"];
  return JobId{job.is_string() ? std::stoull(job.get<std::string>()) : job.get<uint64_t>()};
}

json LocalCluster::status(JobId job) const {
  const auto result = hpctl({"status", to_string(job), "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  json parsed = json::parse(result.out, nullptr, false);
  EXPECT_FALSE(parsed.is_discarded()) << result.out;
  return parsed;
}

std::vector<json> LocalCluster::events(JobId job) const {
  std::vector<json> events;
  std::istringstream lines(hpctl({"events", to_string(job), "--json"}).out);
  for (std::string line; std::getline(lines, line);) {
    json event = json::parse(line, nullptr, false);
    EXPECT_FALSE(event.is_discarded()) << line;
    events.push_back(std::move(event));
  }
  return events;
}

bool LocalCluster::wait_for_step(JobId job, uint64_t step, milliseconds deadline) const {
  const auto reached = [&] {
    std::ifstream in(paths_.job_metrics(job));
    std::string last;
    for (std::string line; std::getline(in, line);) {
      if (!line.empty() && line.back() == '}') last = line;
    }
    const json parsed = json::parse(last, nullptr, false);
    return !parsed.is_discarded() && parsed.value("step", uint64_t{0}) >= step;
  };
  return wait_until(paths_.job(job), reached, deadline);
}

std::string LocalCluster::wait_for_end(JobId job, milliseconds deadline) const {
  std::string state;
  const auto ended = [&] {
    const auto text = read_file(paths_.job_status(job));
    if (!text.ok()) return false;
    const json parsed = json::parse(*text, nullptr, false);
    if (parsed.is_discarded()) return false;
    state = parsed.value("state", "");
    return state == "FINISHED" || state == "FAILED" || state == "CANCELLED" || state == "TIMEOUT";
  };
  return wait_until(paths_.job(job), ended, deadline) ? state : "";
}

std::string LocalCluster::digest(JobId job) const {
  const auto result = hpctl({"checkpoint", "digest", paths_.default_checkpoints(job)});
  EXPECT_EQ(result.exit_code, 0) << result.err << broken_promise("checkpoint");
  return result.out;
}

std::string LocalCluster::mark() const { return "HPCTL_HOME=" + paths_.home(); }

std::vector<pid_t> LocalCluster::processes() const { return marked_processes(mark()); }

void LocalCluster::stop_and_expect_no_leftovers(milliseconds deadline) {
  const auto text = read_file(paths_.controller_json());
  const json controller = text.ok() ? json::parse(*text, nullptr, false) : json();
  if (controller.is_object() && controller.contains("pid")) {
    kill(controller["pid"].get<pid_t>(), SIGTERM);
  }
  wait_until(
      paths_.home(), [&] { return processes().empty(); }, deadline);
  EXPECT_EQ(processes(), std::vector<pid_t>()) << broken_promise("leftover");
}

}  // namespace hpctl::testing
