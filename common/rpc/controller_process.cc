// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/controller_process.h"

#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <poll.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "common/base/file.h"
#include "common/process/spawn.h"
#include "common/rpc/job_channel.h"
#include "common/rpc/status.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"

namespace hpctl {
namespace {

// gRPC deadlines are on the real-time clock.
std::chrono::system_clock::time_point to_system(SteadyTime deadline) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(
             deadline - std::chrono::steady_clock::now());
}

int milliseconds_until(SteadyTime deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

// The last line of what the log gained since `offset`; "" when there is none.
std::string last_log_line(const std::string& path, size_t offset) {
  auto text = read_file(path);
  if (!text.ok() || text->size() <= offset) return "";
  std::string added = text->substr(offset);
  while (!added.empty() && added.back() == '\n') added.pop_back();
  const auto newline = added.rfind('\n');
  return newline == std::string::npos ? added : added.substr(newline + 1);
}

size_t size_of(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const off_t size = fd.valid() ? ::lseek(fd.get(), 0, SEEK_END) : 0;
  return size > 0 ? static_cast<size_t>(size) : 0;
}

// Why a controller ends and cannot even say so in its log.
std::string why_silent(const HomePaths& paths) {
  struct statvfs disk {};
  if (::statvfs(paths.home().c_str(), &disk) == 0 && disk.f_bavail == 0) {
    return "no space left on the disk of " + paths.home() + "; free some, then try again";
  }
  return "it ended without a word";
}

enum class Start { kReady, kAnotherRuns, kGaveUp, kTimedOut };

// Waits for the byte or the end of the pipe.
Start await_ready(int fd, SteadyTime deadline) {
  for (;;) {
    pollfd waiting{fd, POLLIN, 0};
    const int n = ::poll(&waiting, 1, milliseconds_until(deadline));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Start::kTimedOut;
    char byte = 0;
    const ssize_t got = ::read(fd, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1) return Start::kGaveUp;
    return byte == kControllerReady ? Start::kReady : Start::kAnotherRuns;
  }
}

// Starts `program` (argv[0]; "" = the hpcontroller beside us) detached from us.
absl::StatusOr<Start> start_controller(const HomePaths& paths, std::vector<std::string> argv,
                                       SteadyTime deadline) {
  const std::string log_directory =
      std::filesystem::path(paths.controller_log()).parent_path().string();
  HP_RETURN_IF_ERROR(to_absl(paths.is_one_job()
                                 ? make_directories_below(paths.home(), log_directory, 0700)
                                 : make_directories(log_directory, 0700)));
  if (argv.front().empty()) {
    HP_ASSIGN_OR_RETURN(const std::string directory, to_absl(program_directory()));
    argv.front() = directory + "/hpcontroller";
  }
  for (const std::string& word :
       {std::string("--detach"), std::string("--ready-fd"), std::to_string(kSpawnedFd)}) {
    argv.push_back(word);
  }
  std::array<int, 2> pipe_fds{};
  if (::pipe2(pipe_fds.data(), O_CLOEXEC) != 0) return to_absl(errno_error("cannot make a pipe"));
  const UniqueFd reader(pipe_fds[0]);
  UniqueFd writer(pipe_fds[1]);
  const auto pid = spawn_in_new_session(
      {std::move(argv), paths.controller_log(), writer.get(), {"HPCTL_FAILPOINT"}});
  if (!pid.ok()) return to_absl(pid.error());
  writer.reset();
  // The first process forks and ends at once.
  while (::waitpid(*pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return await_ready(reader.get(), deadline);
}

absl::Status did_not_start(const HomePaths& paths, Start start, size_t log_offset) {
  std::string why = last_log_line(paths.controller_log(), log_offset);
  if (why.empty()) why = start == Start::kGaveUp ? why_silent(paths) : "no answer in time";
  return absl::UnavailableError("the controller did not start: " + why +
                                " (log: " + paths.controller_log() + ")");
}

}  // namespace

std::shared_ptr<grpc::Channel> connect_controller(const HomePaths& paths) {
  return grpc::CreateCustomChannel("unix:" + paths.controller_socket(),
                                   grpc::InsecureChannelCredentials(), channel_arguments());
}

absl::Status ping_controller(grpc::Channel& channel, SteadyTime deadline, bool wait) {
  grpc::ClientContext context;
  context.set_deadline(to_system(deadline));
  context.set_wait_for_ready(wait);
  v1::GetVersionResponse response;
  // The stub does not own the channel; the caller keeps it alive.
  const std::shared_ptr<grpc::Channel> borrowed(&channel, [](grpc::Channel*) {});
  return from_grpc(v1::Controller::NewStub(borrowed)->GetVersion(&context, {}, &response));
}

bool is_unproven(const absl::Status& status) {
  // A peer that ends amid the handshake, as a dying controller does, is "Socket closed".
  return absl::IsUnavailable(status) &&
         message_of(status).find("handshake failed") != std::string::npos;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ensure_controller(const HomePaths& paths,
                                                                 SteadyTime deadline,
                                                                 const std::string& program) {
  auto channel = connect_controller(paths);
  if (is_accessible(paths.controller_socket()) && ping_controller(*channel, deadline, false).ok()) {
    return channel;
  }
  const size_t log_offset = size_of(paths.controller_log());
  HP_ASSIGN_OR_RETURN(const Start start,
                      start_controller(paths, {program, "--home", paths.home()}, deadline));
  if (start == Start::kReady || start == Start::kAnotherRuns) {
    channel = connect_controller(paths);  // without the back-off of the failed attempt
    if (ping_controller(*channel, deadline, true).ok()) return channel;
  }
  return did_not_start(paths, start, log_offset);
}

absl::Status start_successor(const HomePaths& paths, JobId job, const std::string& node,
                             SteadyTime deadline) {
  const size_t log_offset = size_of(paths.controller_log());
  HP_ASSIGN_OR_RETURN(const Start start,
                      start_controller(paths,
                                       {"", "--job-dir", paths.home(), "--job", to_string(job),
                                        "--node", node, "--successor"},
                                       deadline));
  if (start == Start::kReady || start == Start::kAnotherRuns) return absl::OkStatus();
  return did_not_start(paths, start, log_offset);
}

}  // namespace hpctl
