// SPDX-License-Identifier: Apache-2.0
// Real hptrain processes, started as the holder starts them: workload, progress page, arena and
// control socket on descriptors 3 to 6. Whatever happens in a test, the destructor leaves no
// process behind.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/fd.h"
#include "common/net/packet_socket.h"
#include "common/worker/worker_abi.h"
#include "common/worker/worker_control.h"
#include "common/worker/workload.h"

namespace hpctl::testing {

class WorkerProcess {
 public:
  // `in_child` runs between fork and exec (async-signal-safe calls only); false = exit 77.
  explicit WorkerProcess(const Workload& workload, UniqueFd arena = memory("arena", ""),
                         bool (*in_child)() = nullptr)
      : WorkerProcess(to_json_text(workload), std::move(arena), in_child) {}
  // An empty document: a standby.
  explicit WorkerProcess(const std::string& workload, UniqueFd arena = memory("arena", ""),
                         bool (*in_child)() = nullptr)
      : arena_fd_(std::move(arena)) {
    add_page();
    const UniqueFd document = memory("workload", workload);
    // The log matters only when a test fails, and then its last words are on the page.
    const UniqueFd log_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
    const char* directory = std::getenv("HPCTL_BIN");
    HP_CHECK(directory != nullptr);
    const std::string program = std::string(directory) + "/hptrain";
    auto control = PacketSocket::make_pair().value();
    control_.emplace(std::move(control.first));
    // Above 6, so that no dup2 below overwrites a source of a later one.
    const std::array<int, 4> sources = {fcntl(document.get(), F_DUPFD_CLOEXEC, 10),
                                        fcntl(page_fds_[0].get(), F_DUPFD_CLOEXEC, 10),
                                        fcntl(arena_fd_.get(), F_DUPFD_CLOEXEC, 10),
                                        fcntl(control.second.get(), F_DUPFD_CLOEXEC, 10)};
    pid_ = fork();
    HP_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (in_child != nullptr && !in_child()) _exit(77);
      dup2(log_fd.get(), STDERR_FILENO);
      dup2(sources[0], kWorkloadFd);
      dup2(sources[1], kProgressFd);
      dup2(sources[2], kArenaFd);
      dup2(sources[3], kControlFd);
      execl(program.c_str(), "hptrain", static_cast<char*>(nullptr));
      _exit(127);
    }
    for (const int fd : sources) close(fd);
  }
  ~WorkerProcess() {
    if (pid_ > 0) {
      send(SIGKILL);
      wait();
    }
    for (const ProgressPage* page : pages_) {
      munmap(const_cast<ProgressPage*>(page), kProgressPageBytes);
    }
  }
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Exit code, or -N after signal N.
  int wait() {
    int status = 0;
    rusage usage{};
    HP_CHECK(wait4(pid_, &status, 0, &usage) == pid_);
    peak_memory_bytes_ = int64_t{usage.ru_maxrss} * 1024;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void send(int signal) const { kill(pid_, signal); }

  void tell(const control::ToWorker& message, int descriptor = -1) {
    HP_CHECK(control_->send_or_queue(control::encode(message), descriptor).ok());
  }
  // The same to one that may have ended meanwhile.
  void tell_if_there(const control::ToWorker& message) {
    static_cast<void>(control_->send_or_queue(control::encode(message)));
  }
  // A page of its own for the next generation.
  void hand_over_page() {
    add_page();
    tell(control::Take{kProgressFd}, page_fds_.back().get());
  }
  // The worker's next message; waits for it. nullopt when the process has ended before.
  std::optional<control::FromWorker> hear() {
    for (;;) {
      auto packet = control_->receive();
      if (!packet.ok()) return std::nullopt;
      if (packet->has_value()) return control::decode_from_worker((*packet)->bytes).value();
      pollfd readable{control_->fd(), POLLIN, 0};
      poll(&readable, 1, -1);
    }
  }
  void close_control() { control_.reset(); }

  const ProgressPage& page() const { return *pages_.back(); }
  // Those that were handed over, and before them the one that it started with.
  const ProgressPage& page(size_t number) const { return *pages_.at(number); }
  std::string message() const { return {page().message, page().message_length.load()}; }
  // Until `step` is done; false when the process ends before that.
  bool wait_for_step(uint64_t step) {
    return wait_until([&] { return page().step.load() >= step; });
  }
  // Until `happened`; false when the process ends before that.
  bool wait_until(const std::function<bool()>& happened) {
    while (!happened()) {
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          info.si_pid != 0) {
        return false;
      }
      usleep(500);  // neither shared memory nor a directory of another process has an event
    }
    return true;
  }
  // Of one that has ended.
  int64_t peak_memory_bytes() const { return peak_memory_bytes_; }
  pid_t pid() const { return pid_; }
  int arena_fd() const { return arena_fd_.get(); }

  static UniqueFd memory(const char* name, const std::string& content) {
    UniqueFd fd(memfd_create(name, MFD_CLOEXEC));
    HP_CHECK(fd.valid());
    HP_CHECK(write(fd.get(), content.data(), content.size()) ==
             static_cast<ssize_t>(content.size()));
    HP_CHECK(lseek(fd.get(), 0, SEEK_SET) == 0);
    return fd;
  }

 private:
  void add_page() {
    page_fds_.push_back(memory("page", std::string(kProgressPageBytes, '\0')));
    void* page =
        mmap(nullptr, kProgressPageBytes, PROT_READ, MAP_SHARED, page_fds_.back().get(), 0);
    HP_CHECK(page != MAP_FAILED);
    pages_.push_back(static_cast<const ProgressPage*>(page));
  }

  std::vector<UniqueFd> page_fds_;
  std::vector<const ProgressPage*> pages_;
  UniqueFd arena_fd_;
  std::optional<PacketSocket> control_;
  int64_t peak_memory_bytes_ = 0;
  pid_t pid_ = -1;
};

}  // namespace hpctl::testing
