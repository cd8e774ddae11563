// SPDX-License-Identifier: Apache-2.0
// The listener of a job's controller for other machines. We accept ourselves and hand on to gRPC,
// which proves our identity by TLS and would accept all connections at once. Here no more come in
// at a time than handshakes.h allows, and a peer that hung up while it waited costs nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "controller/access/handshakes.h"

namespace hpctl {

class TcpListener {
 public:
  // On the listener's thread; takes over the descriptor (non-blocking, close-on-exec).
  using Accepted = std::function<void(UniqueFd connection)>;

  // `address` is "IP:PORT", port 0 = any free one. From now on the kernel takes connections, which
  // wait for start(). kUnavailable where the address is none of this machine, or the port is in
  // use. `handshakes` outlives the listener.
  static Result<std::unique_ptr<TcpListener>> open(const std::string& address,
                                                   Handshakes& handshakes);
  ~TcpListener();  // as stop()
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;

  uint16_t port() const { return port_; }
  // Once.
  void start(Accepted accepted);
  // Accepts no more. Waiting connections are closed when the listener is destroyed.
  void stop();

 private:
  TcpListener(UniqueFd socket, UniqueFd stop_event, uint16_t port, Handshakes& handshakes);
  void run();
  void accept_one();

  const UniqueFd socket_;
  const UniqueFd stop_event_;
  const uint16_t port_;
  Handshakes& handshakes_;
  Accepted accepted_;
  std::thread thread_;
};

}  // namespace hpctl
