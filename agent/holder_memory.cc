// SPDX-License-Identifier: Apache-2.0
#include "agent/holder_memory.h"

#include <poll.h>

#include <optional>

namespace hpctl::agent {
namespace {

constexpr int kGreetingTimeoutMs = 10'000;

// The next message and its descriptor.
Result<std::pair<holder::ToAgent, UniqueFd>> next_message(PacketSocket& socket) {
  for (;;) {
    HP_TRY_ASSIGN(std::optional<Packet> packet, socket.receive());
    if (packet) {
      HP_TRY_ASSIGN(holder::ToAgent message, holder::decode_to_agent(packet->bytes));
      return std::pair(std::move(message), std::move(packet->descriptor));
    }
    pollfd readable{socket.fd(), POLLIN, 0};
    if (::poll(&readable, 1, kGreetingTimeoutMs) == 0) {
      return Error{ErrorCode::kUnavailable, "no greeting from the holder"};
    }
  }
}

}  // namespace

Result<HolderMemory> read_memory(PacketSocket& socket) {
  HolderMemory memory;
  for (;;) {
    HP_TRY_ASSIGN(auto next, next_message(socket));
    auto& [message, descriptor] = next;
    if (const auto* hello = std::get_if<holder::Hello>(&message)) {
      memory.hello = *hello;
    } else if (const auto* worker = std::get_if<holder::WorkerState>(&message)) {
      memory.workers.emplace_back(*worker, std::move(descriptor));
    } else if (auto* report = std::get_if<holder::StoredReport>(&message)) {
      memory.reports.push_back(std::move(*report));
    } else if (auto* exit = std::get_if<holder::Exited>(&message)) {
      memory.exits.push_back(std::move(*exit));
    } else if (std::holds_alternative<holder::HelloEnd>(message)) {
      break;
    }
  }
  if (memory.hello.version != holder::kProtocolVersion) {
    return Error{ErrorCode::kFailedPrecondition,
                 "this hpagent does not fit the holder that runs; install the version the job was "
                 "started with, or restart the job"};
  }
  return memory;
}

}  // namespace hpctl::agent
