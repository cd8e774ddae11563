// SPDX-License-Identifier: Apache-2.0
// A web server of this machine that treats one request after the other as a test tells it to: takes
// it, answers with a status, says nothing, or closes the connection. Keeps what was sent.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "tests/support/http_get.h"

namespace hpctl::test {

class ScriptedHttp {
 public:
  static constexpr int kSaysNothing = 0;  // until the server ends
  static constexpr int kCloses = -1;      // without an answer

  // `script`: an answer for each request; those after it get 200.
  explicit ScriptedHttp(std::deque<int> script = {}) : script_(std::move(script)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~ScriptedHttp() {
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  ScriptedHttp(const ScriptedHttp&) = delete;
  ScriptedHttp& operator=(const ScriptedHttp&) = delete;

  std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string url(const std::string& path) const { return "http://" + host() + path; }

  // The requests so far, head and body, once there are so many; fewer after a minute.
  std::vector<std::string> requests(size_t at_least) {
    std::unique_lock lock(mutex_);
    came_.wait_for(lock, std::chrono::minutes(1), [&] { return requests_.size() >= at_least; });
    return requests_;
  }
  static std::string body_of(const std::string& request) {
    const size_t head = request.find("\r\n\r\n");
    return head == std::string::npos ? "" : request.substr(head + 4);
  }

 private:
  void serve() {
    for (;;) {
      std::array<pollfd, 2> ready = {{{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
      ::poll(ready.data(), ready.size(), -1);
      if (ready[1].revents != 0) return;
      UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection.valid()) answer(std::move(connection));
    }
  }

  void answer(UniqueFd connection) {
    std::string request;
    std::array<char, 4096> chunk;
    for (ssize_t n = 0; !http_is_whole(request) &&
                        (n = ::read(connection.get(), chunk.data(), chunk.size())) > 0;) {
      request.append(chunk.data(), static_cast<size_t>(n));
    }
    int status = 200;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      if (!script_.empty()) {
        status = script_.front();
        script_.pop_front();
      }
    }
    if (status == kSaysNothing) {
      silent_.push_back(std::move(connection));
    } else if (status != kCloses) {
      const std::string text =
          "HTTP/1.1 " + std::to_string(status) + " said\r\nContent-Length: 2\r\n\r\nok";
      // Who has gone meanwhile gets none.
      (void)write_all(connection.get(), text, "http");
    }
    came_.notify_all();
  }

  const UniqueFd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const UniqueFd stop_{::eventfd(0, EFD_CLOEXEC)};
  uint16_t port_ = 0;
  std::vector<UniqueFd> silent_;  // its thread's
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<int> script_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace hpctl::test
