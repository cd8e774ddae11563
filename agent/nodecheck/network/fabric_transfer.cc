// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/network/fabric_transfer.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>

#include "agent/nodecheck/core/known_bytes.h"
#include "agent/nodecheck/fabric/port.h"
#include "agent/nodecheck/network/fabric_rails.h"
#include "agent/nodecheck/network/messages.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/random_hex.h"
#include "common/net/frame.h"

namespace hpctl::agent {
namespace {

using SteadyClock = std::chrono::steady_clock;
using nlohmann::json;

constexpr size_t kMessageBytes = 64U << 10;
constexpr size_t kDepth = FabricPort::kMostUnderWay;
constexpr int kIdlePasses = 256;  // before it is waited a little
constexpr int kIdleWaitMs = 1;

// One device's two streams.
struct Rail {
  std::string name;
  std::unique_ptr<FabricPort> port;
  std::string expected;               // the block of the peer's messages
  std::array<bool, kDepth> waits{};   // the part of the memory has a receive under way
  uint64_t receives = 0;              // begun
  uint64_t received = 0;              // messages
  uint64_t sent = 0;                  // begun
  double seconds = 0;                 // until the last arrived
  std::optional<uint64_t> of_peer{};  // what it has sent
  WrongBytes wrong{};
  std::string trouble{};  // it is of no use any more

  bool has_all() const { return !trouble.empty() || (of_peer && received >= *of_peer); }
};

uint64_t stream_of(size_t rail, bool of_dialler) { return 2 * rail + (of_dialler ? 1 : 0); }

// From the endpoints' meeting to the verdict on what came.
class RailExchange {
 public:
  RailExchange(int connection, std::vector<Rail>& rails)
      : connection_(connection), rails_(rails), begin_(SteadyClock::now()) {}

  Transfer run() {
    const auto sends_until = begin_ + kExchangeTime;
    const auto deadline = sends_until + kDrainPatience;
    for (int idle = 0; !(said_done_ && peer_is_done_);) {
      const auto now = SteadyClock::now();
      if (now >= deadline) break;
      bool moved = false;
      for (Rail& rail : rails_) moved = advance(rail, now < sends_until) || moved;
      idle = moved ? 0 : std::min(idle + 1, kIdlePasses);
      if (!hear_peer(idle == kIdlePasses ? kIdleWaitMs : 0)) break;
      if (now >= sends_until && !tell_peer()) break;
    }
    return verdict();
  }

 private:
  // False: nothing happened.
  bool advance(Rail& rail, bool sends) {
    if (!rail.trouble.empty()) return false;
    const auto moved = try_to_advance(rail, sends);
    if (!moved.ok()) rail.trouble = moved.error().message;
    return !moved.ok() || *moved;
  }

  Result<bool> try_to_advance(Rail& rail, bool sends) const {
    bool moved = false;
    while (!rail.waits[rail.receives % kDepth]) {
      const size_t part = rail.receives % kDepth;
      HP_TRY_ASSIGN(const bool begun,
                    rail.port->receive(rail.receives, part * kMessageBytes, kMessageBytes));
      if (!begun) break;
      rail.waits[part] = true;
      ++rail.receives;
    }
    while (sends) {
      HP_TRY_ASSIGN(const bool begun,
                    rail.port->send(rail.sent, known_offset(rail.sent), kMessageBytes));
      if (!begun) break;
      ++rail.sent;
      moved = true;
    }
    for (;;) {
      HP_TRY_ASSIGN(const auto ended, rail.port->progress());
      if (!ended) return moved;
      moved = true;
      if (ended->was_received) take(rail, ended->tag);
    }
  }

  void take(Rail& rail, uint64_t message) const {
    const size_t part = message % kDepth;
    rail.waits[part] = false;
    ++rail.received;
    rail.seconds = std::chrono::duration<double>(SteadyClock::now() - begin_).count();
    compare_known(rail.port->received().subspan(part * kMessageBytes, kMessageBytes), rail.expected,
                  message, rail.wrong);
  }

  // False: the peer is gone, or its message is unknown.
  bool hear_peer(int wait_ms) {
    pollfd entry{connection_, POLLIN, 0};
    if (::poll(&entry, 1, wait_ms) <= 0) return true;
    const auto frame = read_frame(connection_, frame_deadline(kMeetPatience));
    if (!frame.ok()) return false;
    try {
      const json message = parse_message(*frame);
      peer_is_done_ = peer_is_done_ || message.contains("done");
      if (!message.contains("sent")) return true;
      const json& sent = message.at("sent");
      for (size_t i = 0; i < rails_.size(); ++i) rails_[i].of_peer = sent.at(i).get<uint64_t>();
    } catch (const json::exception&) {
      return false;
    }
    return true;
  }

  // Sends the counts once, and a note once all messages have arrived. False: the peer is gone.
  bool tell_peer() {
    const auto tell = [&](const json& message) {
      return write_frame(connection_, json_text(message), frame_deadline(kMeetPatience)).ok();
    };
    if (!said_sent_) {
      json sent = json::array();
      for (const Rail& rail : rails_) sent.push_back(rail.sent);
      if (!tell({{"sent", std::move(sent)}})) return false;
      said_sent_ = true;
    }
    const bool has_all =
        std::all_of(rails_.begin(), rails_.end(), [](const Rail& rail) { return rail.has_all(); });
    if (said_done_ || !has_all) return true;
    said_done_ = true;
    return tell({{"done", true}});
  }

  // A collective is as slow as its slowest device.
  Transfer verdict() const {
    Transfer transfer{std::numeric_limits<double>::infinity(), "", ""};
    const double until_now = std::chrono::duration<double>(SteadyClock::now() - begin_).count();
    std::string slowest;
    for (const Rail& rail : rails_) {
      const auto bytes = static_cast<double>(rail.received * kMessageBytes);
      const double seconds = rail.has_all() ? rail.seconds : until_now;
      const double rate = rail.trouble.empty() ? bytes / std::max(seconds, kShortestSeconds) : 0;
      if (rate < transfer.bytes_per_s) {
        transfer.bytes_per_s = rate;
        slowest = what_happened(rail);
      }
      if (rail.wrong.messages > 0 && transfer.wrong.empty()) transfer.wrong = wrong_text(rail);
    }
    transfer.trouble = slowest;
    transfer.bytes_per_s *= static_cast<double>(rails_.size());
    return transfer;
  }

  std::string what_happened(const Rail& rail) const {
    if (!rail.trouble.empty()) return rail.name + ": " + rail.trouble;
    if (rail.received == 0) return rail.name + ": nothing came";
    if (!rail.has_all()) {
      return rail.name + ": " + std::to_string(rail.received) + " messages of " +
             (rail.of_peer ? std::to_string(*rail.of_peer) : "the peer's") + " came in time";
    }
    if (rails_.size() == 1) return "";
    return "the slowest of " + std::to_string(rails_.size()) + " devices is " + rail.name;
  }

  static std::string wrong_text(const Rail& rail) {
    return rail.name + ": " + std::to_string(rail.wrong.messages) + " of " +
           std::to_string(rail.received) +
           " messages differ from what was sent, the first is number " +
           std::to_string(rail.wrong.first_message) + " from byte " +
           std::to_string(rail.wrong.first_byte) + " on";
  }

  const int connection_;
  std::vector<Rail>& rails_;
  const SteadyClock::time_point begin_;
  bool said_sent_ = false;
  bool said_done_ = false;
  bool peer_is_done_ = false;
};

struct PeerNames {
  std::string provider;
  std::vector<std::string> names;
};

Result<PeerNames> swap_names(int connection, const json& own) {
  const int64_t deadline = frame_deadline(kMeetPatience + kFabricOpenLimit);
  HP_TRY(write_frame(connection, json_text(own), deadline));
  HP_TRY_ASSIGN(const std::string frame, read_frame(connection, deadline));
  try {
    const json message = parse_message(frame);
    PeerNames peer{message.at("provider").get<std::string>(), {}};
    for (const json& name : message.at("names")) {
      peer.names.push_back(from_hex(name.get<std::string>()).value_or(""));
    }
    return peer;
  } catch (const json::exception& e) {
    return Error{ErrorCode::kDataLoss,
                 std::string("the peer's message cannot be read: ") + e.what()};
  }
}

// `rails` are the caller's to keep, with what libfabric does in them.
Result<Transfer> try_to_exchange(int connection, bool dialled, const std::string& own_ip,
                                 std::vector<Rail>& rails) {
  HP_TRY_ASSIGN(const std::vector<FabricDomain> domains, fabric_rails(own_ip));
  const std::string& provider = domains.front().provider;
  json names = json::array();
  const size_t block = known_bytes(0, kMessageBytes).size();
  for (const FabricDomain& domain : domains) {
    auto port = FabricPort::open(domain, block, kDepth * kMessageBytes);
    if (!port.ok()) return Error{port.error().code, domain.name + ": " + port.error().message};
    std::ranges::copy(known_bytes(stream_of(rails.size(), dialled), kMessageBytes),
                      (*port)->sent().begin());
    names.push_back(to_hex((*port)->name()));
    rails.push_back({domain.name, std::move(*port),
                     known_bytes(stream_of(rails.size(), !dialled), kMessageBytes)});
  }
  HP_TRY_ASSIGN(const PeerNames peer,
                swap_names(connection, {{"provider", provider}, {"names", std::move(names)}}));
  if (peer.provider != provider) {
    return Error{ErrorCode::kFailedPrecondition,
                 "its provider is " + provider + ", its peer's is " + peer.provider};
  }
  if (peer.names.empty()) return Error{ErrorCode::kNotFound, "its peer has no device"};
  rails.resize(std::min(rails.size(), peer.names.size()));
  for (size_t i = 0; i < rails.size(); ++i) HP_TRY(rails[i].port->connect(peer.names[i]));
  return RailExchange(connection, rails).run();
}

}  // namespace

void run_fabric_transfer(const std::string& own_ip, bool dialled) {
  std::vector<Rail> rails;
  const auto done = try_to_exchange(kFabricPairSocket, dialled, own_ip, rails);
  const Transfer transfer = done.ok() ? *done : Transfer{0, done.error().message, ""};
  const json answer = {{"bytes_per_s", transfer.bytes_per_s},
                       {"trouble", transfer.trouble},
                       {"wrong", transfer.wrong}};
  const std::string text = json_text(answer);
  // A parent that is gone has ended this process, too.
  const bool said = write_frame(kFabricAnswerSocket, text, frame_deadline(kMeetPatience)).ok();
  std::_Exit(said ? 0 : 1);
}

}  // namespace hpctl::agent
