// SPDX-License-Identifier: Apache-2.0
#include "common/process/log_writer.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "common/base/log.h"
#include "common/base/rotating_log.h"
#include "common/net/packet.h"
#include "common/process/pidfd.h"
#include "common/process/process_stat.h"

namespace hpctl {
namespace {

constexpr int64_t kWaitPerSecondMs = 100;
constexpr size_t kOpenLogs = 256;  // beyond the ranks of one node; then all are opened again
constexpr size_t kPieceOverhead = 128;
constexpr int kPacketsAtOnce = 64;
constexpr size_t kOwnLogChunk = 64U << 10;
constexpr int kOwnLogPipeBytes = 1 << 20;  // the limit of a user that is not root
constexpr int64_t kShortLifeMs = 5'000;    // of a writer; then the next one waits
constexpr int kNextWriterPauseMs = 500;
// Descriptors of both processes besides 0, 1 and 2.
constexpr int kPacketsFd = 3;
constexpr int kOwnLogFd = 4;
constexpr int kFirstFreeFd = 5;

// The process that writes: one thread takes what comes, the other writes it.
class Writer {
 public:
  // `own_log` may be invalid.
  Writer(UniqueFd packets, UniqueFd own_log)
      : packets_(std::move(packets)), own_log_(std::move(own_log)) {}

  void run() {
    std::thread writer([this] { write(); });
    take();
    writer.join();
  }

 private:
  struct Queued {
    bool is_own = false;  // of the parent's own log; else a packet
    std::string bytes;
  };

  // Until every sender has closed its ends.
  void take() {
    std::array<pollfd, 2> inputs{{{packets_.fd(), POLLIN, 0}, {own_log_.get(), POLLIN, 0}}};
    while (inputs[0].fd >= 0 || inputs[1].fd >= 0) {
      ::poll(inputs.data(), inputs.size(), -1);
      if (inputs[0].revents != 0 && !take_packets()) inputs[0].fd = -1;
      if (inputs[1].revents != 0 && !take_own_log()) inputs[1].fd = -1;
    }
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }

  // False at the end.
  bool take_packets() {
    for (int i = 0; i < kPacketsAtOnce; ++i) {
      auto packet = packets_.receive();
      if (!packet.ok()) return false;
      if (!packet->has_value()) return true;
      // A copy, because the packet's own buffer has room for the largest.
      put({false, std::string(std::string_view((*packet)->bytes))});
    }
    return true;
  }

  bool take_own_log() {
    std::string bytes(kOwnLogChunk, '\0');
    const ssize_t n = ::read(own_log_.get(), bytes.data(), bytes.size());
    if (n <= 0) return n < 0 && errno == EINTR;
    put({true, bytes.substr(0, static_cast<size_t>(n))});
    return true;
  }

  void put(Queued queued) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queued_bytes_ < kLogQueueBytes; });
    queued_bytes_ += queued.bytes.size() + kPieceOverhead;
    queue_.push_back(std::move(queued));
    changed_.notify_all();
  }

  void write() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_over_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Queued next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (next.is_own) {
        write_own(next.bytes);
      } else {
        write_piece(next.bytes);
      }
      lock.lock();
      // Only now: what is being written counts.
      queued_bytes_ -= next.bytes.size() + kPieceOverhead;
      changed_.notify_all();
    }
  }

  void write_own(std::string_view bytes) {
    if (lost_own_bytes_ > 0 && is_written("[hpctl: " + std::to_string(lost_own_bytes_) +
                                          " bytes of this log could not be written]\n")) {
      lost_own_bytes_ = 0;
    }
    if (!is_written(bytes)) lost_own_bytes_ += bytes.size();
  }

  static bool is_written(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(STDERR_FILENO, bytes.data(), bytes.size());
      if (n >= 0) {
        bytes.remove_prefix(static_cast<size_t>(n));
      } else if (errno == EAGAIN) {
        pollfd writable{STDERR_FILENO, POLLOUT, 0};
        ::poll(&writable, 1, -1);
      } else if (errno != EINTR) {
        return false;
      }
    }
    return true;
  }

  void write_piece(std::string_view packet) {
    PacketReader reader(packet);
    const std::string path = reader.text();
    const auto max_bytes = reader.number<uint64_t>();
    const auto lost_bytes = reader.number<uint64_t>();
    const std::string bytes = reader.text();
    if (!reader.finished()) return log_error("a damaged piece of a log; it is dropped");
    if (logs_.size() >= kOpenLogs && !logs_.contains(path)) logs_.clear();
    RotatingLog& log = logs_.try_emplace(path, path).first->second;
    if (lost_bytes > 0) {
      log.append("[hpctl: " + std::to_string(lost_bytes) +
                     " bytes lost while the file server did not answer]\n",
                 max_bytes);
    }
    if (!bytes.empty()) log.append(bytes, max_bytes);
  }

  PacketSocket packets_;
  const UniqueFd own_log_;
  std::map<std::string, RotatingLog> logs_;  // of the writing thread
  uint64_t lost_own_bytes_ = 0;              // likewise
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Queued> queue_;
  size_t queued_bytes_ = 0;
  bool is_over_ = false;
};

// After a fork the name and the command line are the parent's, by which people and tests find it.
void rename_process(const char* name) {
  ::prctl(PR_SET_NAME, name);
  constexpr int kArgumentsBegin = 48;
  constexpr int kArgumentsEnd = 49;
  const auto address = [](int field) {
    return static_cast<uintptr_t>(
        std::strtoull(process_stat(::getpid(), field).c_str(), nullptr, 10));
  };
  const uintptr_t begin = address(kArgumentsBegin);
  const uintptr_t end = address(kArgumentsEnd);
  if (begin == 0 || end <= begin + 1) return;
  // The kernel names the place by number.
  auto* arguments = reinterpret_cast<char*>(begin);  // NOLINT(performance-no-int-to-ptr)
  std::memset(arguments, 0, end - begin);
  std::copy_n(name, std::min(std::strlen(name), end - begin - 1), arguments);
}

// Moves the two to their numbers and closes all others. `own_log`: -1 = none.
bool take_descriptors(int packets, int own_log) {
  const UniqueFd packets_copy(::fcntl(packets, F_DUPFD, kFirstFreeFd));
  if (::dup2(packets_copy.get(), kPacketsFd) < 0) return false;
  if (own_log < 0) {
    ::close(kOwnLogFd);
  } else {
    const UniqueFd own_log_copy(::fcntl(own_log, F_DUPFD, kFirstFreeFd));
    if (::dup2(own_log_copy.get(), kOwnLogFd) < 0) return false;
  }
  // Above all the node's lock, and the pipe by which the reaper sees that the holder has ended.
  ::close_range(kFirstFreeFd, ~0U, 0);
  return true;
}

[[noreturn]] void run_writer(bool has_own_log) {
  rename_process("hp-log-writer");
  Writer(UniqueFd(kPacketsFd), UniqueFd(has_own_log ? kOwnLogFd : -1)).run();
  ::_exit(0);
}

// Each next writer gets what a dead one left in socket and pipe, because the keeper has both.
[[noreturn]] void run_keeper(bool has_own_log) {
  rename_process("hp-log-keeper");
  const SystemClock clock;
  for (;;) {
    const int64_t started_ms = clock.monotonic_ms();
    const pid_t pid = ::fork();
    if (pid == 0) run_writer(has_own_log);
    int status = -1;
    while (pid > 0 && ::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) ::_exit(0);
    log_warning("the log writer process has ended; another one is started");
    if (clock.monotonic_ms() - started_ms < kShortLifeMs) ::poll(nullptr, 0, kNextWriterPauseMs);
  }
}

[[noreturn]] void run_child(int packets, int own_log) {
  ::setpgid(0, 0);
  // A signal to a whole session ends the parent, and then the writer has to write the rest.
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);
  if (!take_descriptors(packets, own_log)) ::_exit(1);
  run_keeper(own_log >= 0);
}

struct OwnLogPipe {
  UniqueFd read_end;
  UniqueFd write_end;  // does not block
};

Result<OwnLogPipe> make_own_log_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot create a pipe for the own log");
  OwnLogPipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  if (::fcntl(pipe.write_end.get(), F_SETFL, O_NONBLOCK) != 0) {
    return errno_error("cannot set up the pipe for the own log");
  }
  // Without the right to a larger one it keeps its size.
  ::fcntl(pipe.write_end.get(), F_SETPIPE_SZ, kOwnLogPipeBytes);
  return pipe;
}

bool is_same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

Outcome redirect_stderr(int to) {
  const bool with_stdout = is_same_file(STDOUT_FILENO, STDERR_FILENO);
  if (::dup2(to, STDERR_FILENO) < 0 || (with_stdout && ::dup2(to, STDOUT_FILENO) < 0)) {
    return errno_error("cannot redirect stderr");
  }
  return Ok{};
}

}  // namespace

Outcome LogWriter::start(OwnLog own) {
  HP_TRY_ASSIGN(auto pair, PacketSocket::make_pair());
  OwnLogPipe own_log;
  if (own == OwnLog::kThroughWriter) {
    HP_TRY_ASSIGN(own_log, make_own_log_pipe());
  }
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("cannot fork the log writer");
  if (pid == 0) run_child(pair.second.get(), own_log.read_end.get());
  keeper_ = pid;
  process_ = open_pidfd(pid);
  socket_.emplace(std::move(pair.first));
  if (own == OwnLog::kThroughWriter) {
    HP_TRY(redirect_stderr(own_log.write_end.get()));
    has_own_log_ = true;
  }
  return Ok{};
}

bool LogWriter::append(const LogPiece& piece) {
  const bool sent = socket_ && is_sent(PacketWriter()
                                           .text(piece.path)
                                           .number(piece.max_bytes)
                                           .number(piece.lost_bytes)
                                           .text(piece.bytes)
                                           .take());
  if (!sent) {
    if (dropped_bytes_ == 0) {
      log_warning("the log writer does not take more: a file server does not answer, or the " +
                  std::string("workers print too much; output is dropped"));
    }
    dropped_bytes_ += piece.bytes.size();
  } else if (dropped_bytes_ > 0) {
    const std::string lost = std::to_string(std::exchange(dropped_bytes_, 0));
    log_warning("logs are written again; " + lost + " bytes of output are lost");
  }
  return sent;
}

bool LogWriter::is_sent(const std::string& packet) {
  for (;;) {
    const auto sent = socket_->try_send(packet);
    if (!sent.ok() || *sent) return sent.ok();
    const int64_t now = clock_.monotonic_ms();
    if (now - second_began_ms_ >= 1'000) {
      second_began_ms_ = now;
      may_wait_ms_ = kWaitPerSecondMs;
    }
    if (may_wait_ms_ <= 0 || dropped_bytes_ > 0) return false;
    pollfd writable{socket_->fd(), POLLOUT, 0};
    ::poll(&writable, 1, static_cast<int>(may_wait_ms_));
    may_wait_ms_ -= std::max<int64_t>(1, clock_.monotonic_ms() - now);
  }
}

void LogWriter::finish(int64_t limit_ms) {
  socket_.reset();
  if (std::exchange(has_own_log_, false)) {
    const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    [[maybe_unused]] const Outcome closed = redirect_stderr(null.get());
  }
  keeper_ = -1;
  if (!process_.valid()) return;
  pollfd ended{process_.get(), POLLIN, 0};
  ::poll(&ended, 1, static_cast<int>(limit_ms));
  process_.reset();
}

}  // namespace hpctl
