// SPDX-License-Identifier: Apache-2.0
#include "controller/agents/holder_probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include "common/base/fd.h"

namespace hpctl {
namespace {

using SteadyClock = std::chrono::steady_clock;
using core::HolderProbe;

std::optional<sockaddr_in> parse_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, port);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  const std::string ip = text.substr(0, colon);
  if (error != std::errc() || rest != end || port == 0) return std::nullopt;
  if (::inet_pton(AF_INET, ip.c_str(), &address.sin_addr) != 1) return std::nullopt;
  return address;
}

HolderProbe meaning_of(int error) {
  if (error == 0) return HolderProbe::kAnswered;
  return error == ECONNREFUSED ? HolderProbe::kRefused : HolderProbe::kUnanswered;
}

// kAsked while the answer is awaited on `socket`.
HolderProbe begin_probe(const std::string& text, UniqueFd& socket) {
  const auto address = parse_address(text);
  if (!address) return HolderProbe::kNotAsked;
  socket.reset(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return HolderProbe::kNotAsked;
  const auto* const name = reinterpret_cast<const sockaddr*>(&*address);
  if (::connect(socket.get(), name, sizeof(*address)) == 0) return HolderProbe::kAnswered;
  return errno == EINPROGRESS ? HolderProbe::kAsked : meaning_of(errno);
}

HolderProbe answer_on(int socket) {
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return HolderProbe::kNotAsked;
  return meaning_of(error);
}

}  // namespace

std::vector<HolderProbe> probe_holders(const std::vector<std::string>& addresses,
                                       std::chrono::milliseconds patience) {
  const auto deadline = SteadyClock::now() + patience;
  std::vector<HolderProbe> answers;
  std::vector<UniqueFd> sockets(addresses.size());
  std::vector<pollfd> waits;
  for (size_t i = 0; i < addresses.size(); ++i) {
    answers.push_back(begin_probe(addresses[i], sockets[i]));
    const bool waiting = answers[i] == HolderProbe::kAsked;
    waits.push_back({waiting ? sockets[i].get() : -1, POLLOUT, 0});  // poll() leaves out -1
  }
  while (std::count(answers.begin(), answers.end(), HolderProbe::kAsked) > 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
    if (left.count() <= 0) break;
    if (::poll(waits.data(), waits.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) {
      break;
    }
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].fd < 0 || waits[i].revents == 0) continue;
      answers[i] = answer_on(waits[i].fd);
      waits[i].fd = -1;
    }
  }
  std::replace(answers.begin(), answers.end(), HolderProbe::kAsked, HolderProbe::kUnanswered);
  return answers;
}

}  // namespace hpctl
