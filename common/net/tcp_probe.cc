// SPDX-License-Identifier: Apache-2.0
#include "common/net/tcp_probe.h"

#include <cerrno>
#include <optional>
#include <utility>

#include "common/base/fd.h"
#include "common/net/socket_address.h"
#include "common/net/tcp_connect.h"
#include "common/net/wait_for_fd.h"

namespace hpctl {
namespace {

TcpAnswer meaning_of(int error) {
  if (error == 0) return TcpAnswer::kAccepted;
  return error == ECONNREFUSED ? TcpAnswer::kRefused : TcpAnswer::kNone;
}

// nullopt while the answer is awaited on `socket`.
std::optional<TcpAnswer> begin_probe(const std::string& text, UniqueFd& socket) {
  const auto address = SocketAddress::parse(text);
  if (!address.ok()) return TcpAnswer::kNotAsked;
  TcpAttempt attempt = begin_tcp(*address);
  if (!attempt.socket.valid()) return TcpAnswer::kNotAsked;
  socket = std::move(attempt.socket);
  if (attempt.error == EINPROGRESS) return std::nullopt;
  return meaning_of(attempt.error);
}

}  // namespace

std::vector<TcpAnswer> probe_tcp(const std::vector<std::string>& addresses,
                                 std::chrono::milliseconds patience) {
  const int64_t deadline_ms = deadline_in(patience.count());
  std::vector<TcpAnswer> answers;
  size_t waiting = 0;
  std::vector<UniqueFd> sockets(addresses.size());
  std::vector<pollfd> waits;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const auto answer = begin_probe(addresses[i], sockets[i]);
    answers.push_back(answer.value_or(TcpAnswer::kNone));
    waits.push_back({answer ? -1 : sockets[i].get(), POLLOUT, 0});  // poll() leaves out -1
    if (!answer) ++waiting;
  }
  while (waiting > 0) {
    const auto ready = wait_for_fds(waits, deadline_ms);
    if (!ready.ok() || *ready == 0) break;
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].fd < 0 || waits[i].revents == 0) continue;
      answers[i] = meaning_of(tcp_answer_on(waits[i].fd));
      waits[i].fd = -1;
      --waiting;
    }
  }
  return answers;
}

}  // namespace hpctl
