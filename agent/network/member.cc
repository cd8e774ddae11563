// SPDX-License-Identifier: Apache-2.0
#include "agent/network/member.h"

#include <poll.h>

#include <cerrno>
#include <optional>

#include "agent/network/exchange.h"
#include "agent/network/messages.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/frame_stream.h"
#include "common/base/node_address.h"
#include "common/base/socket_address.h"

namespace hpctl::agent {
namespace {

using SteadyClock = std::chrono::steady_clock;
// A file on a shared file system tells nobody that it is there.
constexpr int kLookAgainMs = 50;
// The coordinator says something at the end of every round, and waits for all to come before.
constexpr auto kSilencePatience = std::chrono::minutes(5);

struct Joined {
  FrameStream coordinator;
  std::string own_ip;
};

Result<Joined> join_once(const MemberOptions& options) {
  HP_TRY_ASSIGN(const std::string text, read_file(options.meeting_path, 4'096));
  HP_TRY_ASSIGN(const Meeting meeting, parse_meeting(text, options.meeting_path));
  HP_TRY_ASSIGN(UniqueFd fd, dial(meeting.address, ""));
  HP_TRY_ASSIGN(const SocketAddress own, SocketAddress::of_socket(fd.get()));
  FrameStream stream(std::move(fd));
  HP_TRY(stream.authenticate(meeting.secret, FrameStream::Side::kDialled));
  return Joined{std::move(stream), own.ip()};
}

// The file may be of a run before, until the coordinator of this one has replaced it.
Result<Joined> find_coordinator(const MemberOptions& options) {
  const auto deadline = SteadyClock::now() + options.patience;
  for (;;) {
    auto joined = join_once(options);
    if (joined.ok()) return joined;
    if (SteadyClock::now() >= deadline) {
      return Error{ErrorCode::kUnavailable, "rank 0 of the check was not found by " +
                                                options.meeting_path + ": " +
                                                joined.error().message};
    }
    ::poll(nullptr, 0, kLookAgainMs);
  }
}

Result<std::string> next_message(FrameStream& coordinator) {
  const auto deadline = SteadyClock::now() + kSilencePatience;
  for (;;) {
    HP_TRY(coordinator.flush());
    HP_TRY_ASSIGN(auto packet, coordinator.receive());
    if (packet) return std::move(*packet);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
    if (left.count() <= 0) return Error{ErrorCode::kUnavailable, "rank 0 says nothing any more"};
    const auto events = static_cast<short>(POLLIN | (coordinator.has_unsent() ? POLLOUT : 0));
    pollfd entry{coordinator.fd(), events, 0};
    ::poll(&entry, 1, static_cast<int>(left.count()));
  }
}

std::string report_of(int64_t round, const Received& received, const std::string& trouble) {
  return nlohmann::json{{"round", round},
                        {"bytes", received.bytes},
                        {"seconds", received.seconds},
                        {"trouble", trouble}}
      .dump();
}

std::string meet(int64_t round, const std::string& peer, const std::string& word, int listener) {
  const auto connection = peer.empty() ? await(listener, word) : dial(peer, word);
  if (!connection.ok()) return report_of(round, {}, connection.error().message);
  return report_of(round, exchange(connection->get()), "");
}

}  // namespace

Outcome be_member(const MemberOptions& options) {
  HP_TRY_ASSIGN(Joined joined, find_coordinator(options));
  HP_TRY_ASSIGN(const UniqueFd listener, listen_at(joined.own_ip));
  HP_TRY_ASSIGN(const SocketAddress own, SocketAddress::of_socket(listener.get()));
  HP_TRY(joined.coordinator.send(
      nlohmann::json{{"rank", options.rank},
                     {"name", options.name},
                     {"address", own.ip() + ":" + std::to_string(own.port())}}
          .dump()));
  for (;;) {
    HP_TRY_ASSIGN(const std::string text, next_message(joined.coordinator));
    try {
      const auto message = parse_message(text);
      if (message.contains("done")) return Ok{};
      HP_TRY(joined.coordinator.send(meet(message.at("round").get<int64_t>(),
                                          message.at("address").get<std::string>(),
                                          message.at("word").get<std::string>(), listener.get())));
    } catch (const nlohmann::json::exception& e) {
      return Error{ErrorCode::kDataLoss, std::string("rank 0 said what nobody knows: ") + e.what()};
    }
  }
}

}  // namespace hpctl::agent
