// SPDX-License-Identifier: Apache-2.0
#include "hpctl/directory_answer.h"

#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "common/base/fd.h"

namespace hpctl {
namespace {

constexpr std::chrono::seconds kAnswerPatience{3};

// To open a directory asks the server, where an attribute may come from a cache.
void open_once(const std::string& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// A thread that looks, and what those who wait for it share with it. Outlives the thread: whoever
// drops it has called join().
class Look {
 public:
  void start(const std::string& directory) {
    began_ = std::chrono::steady_clock::now();
    thread_ = std::thread([this, directory] {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
      open_once(directory);
      end();
    });
  }
  // Only when it has ended, else this waits for the file server.
  void join() { thread_.join(); }
  // Waits for the answer, unless an earlier call has done so in vain.
  bool is_answered() {
    std::unique_lock lock(mutex_);
    if (!is_late_) changed_.wait_for(lock, kAnswerPatience, [this] { return has_ended_; });
    is_late_ = !has_ended_;
    return has_ended_;
  }
  bool has_ended() {
    const std::lock_guard lock(mutex_);
    return has_ended_;
  }
  std::chrono::seconds age() const {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() -
                                                            began_);
  }

 private:
  void end() {
    {
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_ended_ = false;
  bool is_late_ = false;
  std::chrono::steady_clock::time_point began_;
  std::thread thread_;
};

// The newest look at each directory.
struct Looks {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Look>> of;
};

// Never destroyed: a verb may end while a look still waits for the file server.
Looks& looks() {
  static Looks* const all = std::make_unique<Looks>().release();
  return *all;
}

// One that waits already, or a new one.
std::shared_ptr<Look> start_look(const std::string& directory) {
  Looks& all = looks();
  const std::lock_guard lock(all.mutex);
  std::shared_ptr<Look>& look = all.of[directory];
  if (look != nullptr && !look->has_ended()) return look;
  if (look != nullptr) look->join();
  look = std::make_shared<Look>();
  look->start(directory);
  return look;
}

// At least as long as a look takes to be in vain, after which the directory may have answered.
std::chrono::seconds age_of_look(const std::string& directory) {
  Looks& all = looks();
  const std::lock_guard lock(all.mutex);
  const auto look = all.of.find(directory);
  return look == all.of.end() ? kAnswerPatience : std::max(kAnswerPatience, look->second->age());
}

}  // namespace

bool directory_answers(const std::string& directory) {
  return start_look(directory)->is_answered();
}

std::string describe_verdict(const std::string& directory) {
  return directory + " has not answered for " + std::to_string(age_of_look(directory).count()) +
         " s; look at the file system's server, and at its mount on this machine";
}

Outcome check_directory_answers(const std::string& directory) {
  if (directory_answers(directory)) return Ok{};
  return Error{ErrorCode::kUnavailable, describe_verdict(directory)};
}

}  // namespace hpctl
