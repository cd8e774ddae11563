// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/rendezvous_store.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>

#include "common/base/file.h"

namespace hpctl {

namespace {

constexpr std::chrono::milliseconds kPollInterval{20};
constexpr size_t kMaxValueBytes = 16U << 20;

void throw_if_error(const Outcome& outcome) {
  if (!outcome.ok()) throw std::runtime_error(outcome.error().message);
}

// Gloo's key for the addresses of rank 2 is "2".
std::string who_writes(const std::string& key) {
  const bool number = !key.empty() && std::all_of(key.begin(), key.end(),
                                                  [](char c) { return c >= '0' && c <= '9'; });
  return number ? "rank " + key : "the writer of \"" + key + "\"";
}

}  // namespace

RendezvousStore::RendezvousStore(std::string directory, std::chrono::milliseconds timeout)
    : directory_(std::move(directory)), timeout_(timeout) {
  throw_if_error(make_directories(directory_));
  abort_event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!abort_event_.valid())
    throw std::runtime_error(errno_error("cannot make an eventfd").message);
  // Without inotify (its per-user limit may be reached) the poll interval alone does the work.
  inotify_.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (inotify_.valid()) inotify_add_watch(inotify_.get(), directory_.c_str(), IN_MOVED_TO);
}

// Gloo and its wrappers may put any character into a key; a file name gets only safe ones.
std::string RendezvousStore::path_of(const std::string& key) const {
  std::string name = "key-";
  for (const char c : key) {
    const bool safe = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_';
    if (safe) {
      name += c;
    } else {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "%%%02x", static_cast<unsigned char>(c));
      name += escaped.data();
    }
  }
  return directory_ + "/" + name;
}

void RendezvousStore::set(const std::string& key, const std::vector<char>& data) {
  const std::string path = path_of(key);
  const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
  {
    const UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!fd.valid()) throw std::runtime_error(errno_error("cannot create " + temporary).message);
    throw_if_error(write_all(fd.get(), {data.data(), data.size()}, temporary));
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    const Error error = errno_error("cannot rename " + temporary);
    unlink(temporary.c_str());
    throw std::runtime_error(error.message);
  }
}

std::vector<char> RendezvousStore::get(const std::string& key) {
  wait({key}, timeout_);
  auto text = read_file(path_of(key), kMaxValueBytes);
  if (!text.ok()) throw std::runtime_error(text.error().message);
  return {text->begin(), text->end()};
}

void RendezvousStore::wait(const std::vector<std::string>& keys,
                           const std::chrono::milliseconds& timeout) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + timeout;
  for (const std::string& key : keys) {
    const std::string path = path_of(key);
    while (!is_accessible(path)) {
      if (aborted_) throw std::runtime_error("the rendezvous was aborted");
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) {
        throw std::runtime_error(who_writes(key) + " did not come to the rendezvous in " +
                                 directory_ + " within " + std::to_string(timeout.count()) + " ms");
      }
      wait_for_change(std::min(left, kPollInterval));
    }
  }
}

void RendezvousStore::wait_for_change(std::chrono::milliseconds at_most) {
  std::array<pollfd, 2> fds = {{{abort_event_.get(), POLLIN, 0}, {inotify_.get(), POLLIN, 0}}};
  if (poll(fds.data(), fds.size(), static_cast<int>(at_most.count())) <= 0) return;
  if ((fds[1].revents & POLLIN) != 0) {
    alignas(inotify_event) std::array<char, 4096> events;
    while (read(inotify_.get(), events.data(), events.size()) > 0) {
    }
  }
}

void RendezvousStore::abort() {
  aborted_ = true;
  const uint64_t one = 1;
  if (write(abort_event_.get(), &one, sizeof one) < 0) {
    // The counter is at its maximum, so the event is set already.
  }
}

}  // namespace hpctl
