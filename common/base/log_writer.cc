// SPDX-License-Identifier: Apache-2.0
#include "common/base/log_writer.h"

#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "common/base/log.h"
#include "common/base/packet.h"
#include "common/base/pidfd.h"
#include "common/base/rotating_log.h"

namespace hpctl {
namespace {

constexpr int64_t kWaitPerSecondMs = 100;
constexpr size_t kOpenLogs = 256;  // beyond the ranks of one node; then all are opened again
constexpr size_t kPieceOverhead = 128;
constexpr int kPacketsFd = 3;

// The process that writes: one thread takes pieces from the socket, the other writes them.
class Writer {
 public:
  explicit Writer(UniqueFd packets) : packets_(std::move(packets)) {}

  void run() {
    std::thread writer([this] { write(); });
    take();
    writer.join();
  }

 private:
  // Until every sender has closed its end.
  void take() {
    for (;;) {
      auto packet = packets_.receive();
      std::unique_lock lock(mutex_);
      if (!packet.ok()) {
        is_over_ = true;
        changed_.notify_all();
        return;
      }
      if (packet->has_value()) {
        changed_.wait(lock, [this] { return queued_bytes_ < kLogQueueBytes; });
        // A copy, because the packet's own buffer has room for the largest.
        queue_.emplace_back(std::string_view((*packet)->bytes));
        queued_bytes_ += queue_.back().size() + kPieceOverhead;
        changed_.notify_all();
        continue;
      }
      lock.unlock();
      pollfd readable{packets_.fd(), POLLIN, 0};
      ::poll(&readable, 1, -1);
    }
  }

  void write() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_over_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::string packet = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      write_piece(packet);
      lock.lock();
      // Only now: what is being written counts.
      queued_bytes_ -= packet.size() + kPieceOverhead;
      changed_.notify_all();
    }
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
  std::map<std::string, RotatingLog> logs_;  // of the writing thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> queue_;
  size_t queued_bytes_ = 0;
  bool is_over_ = false;
};

[[noreturn]] void run_child(int packets) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_NAME, "hp-log-writer");
  // A signal to a whole session ends the parent, and then this process has to write the rest.
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  if (packets != kPacketsFd && ::dup2(packets, kPacketsFd) < 0) ::_exit(1);
  // Above all the node's lock, and the pipe by which the guardian sees that the holder has ended.
  ::close_range(kPacketsFd + 1, ~0U, 0);
  Writer(UniqueFd(kPacketsFd)).run();
  ::_exit(0);
}

}  // namespace

Outcome LogWriter::start() {
  if (!socket_) {
    HP_TRY_ASSIGN(auto pair, PacketSocket::make_pair());
    socket_.emplace(std::move(pair.first));
    far_end_ = std::move(pair.second);
  }
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("cannot fork the log writer");
  if (pid == 0) run_child(far_end_.get());
  pid_ = pid;
  process_ = open_pidfd(pid);
  return Ok{};
}

bool LogWriter::has_ended(pid_t pid) {
  if (pid != pid_) return false;
  pid_ = -1;
  process_.reset();
  return true;
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
  far_end_.reset();
  pid_ = -1;
  if (!process_.valid()) return;
  pollfd ended{process_.get(), POLLIN, 0};
  ::poll(&ended, 1, static_cast<int>(limit_ms));
  process_.reset();
}

}  // namespace hpctl
