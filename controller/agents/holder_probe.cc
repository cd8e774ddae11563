// SPDX-License-Identifier: Apache-2.0
#include "controller/agents/holder_probe.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "common/base/fd.h"
#include "common/base/socket_address.h"

namespace hpctl {
namespace {

using SteadyClock = std::chrono::steady_clock;
using core::HolderProbe;

HolderProbe meaning_of(int error) {
  if (error == 0) return HolderProbe::kAnswered;
  return error == ECONNREFUSED ? HolderProbe::kRefused : HolderProbe::kUnanswered;
}

// kAsked while the answer is awaited on `socket`.
HolderProbe begin_probe(const std::string& text, UniqueFd& socket) {
  const auto address = SocketAddress::parse(text);
  if (!address.ok()) return HolderProbe::kNotAsked;
  socket.reset(::socket(address->family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return HolderProbe::kNotAsked;
  if (::connect(socket.get(), address->get(), address->size()) == 0) return HolderProbe::kAnswered;
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
