// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/network/coordinator.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "agent/nodecheck/core/clock_offsets.h"
#include "agent/nodecheck/network/exchange.h"
#include "agent/nodecheck/network/fabric_rails.h"
#include "agent/nodecheck/network/gpu_ranks.h"
#include "agent/nodecheck/network/messages.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/base/random_hex.h"
#include "common/net/frame_stream.h"
#include "common/net/node_address.h"
#include "common/net/socket_address.h"

namespace hpctl::agent {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr size_t kMaxNameBytes = 128;
constexpr size_t kStrangers = 64;  // connections of others that do not say who they are
// Orders and answers of thousands of nodes, beyond what the pair itself takes.
constexpr auto kAnswerMargin = std::chrono::seconds(5);
constexpr size_t kMaxTroubleBytes = 400;

std::chrono::milliseconds answer_patience(NetworkWay way) {
  const std::chrono::milliseconds of_pair = way == NetworkWay::kNccl     ? kNcclRoundPatience
                                            : way == NetworkWay::kFabric ? kFabricRoundPatience
                                                                         : kRoundPatience;
  return of_pair + kAnswerMargin;
}

struct Member {
  std::unique_ptr<FrameStream> stream;  // nullptr = it is gone
  std::string name;
  std::string address;
  NodeMeans means;
  UsedNetwork network;     // as it said last
  int64_t ordered_ms = 0;  // our wall clock when the order of the present round left
  // Its report of that round, and its wall clock when it had the order, unless its release does not
  // report that.
  std::optional<Transfer> transfer;
  std::optional<int64_t> clock_ms;
};

// Words of another machine, for people.
std::string words_of_member(const nlohmann::json& message, const char* key) {
  return printable_line(message.value(key, ""), kMaxTroubleBytes);
}

class Coordinator {
 public:
  Coordinator(UniqueFd listener, std::string secret, int ranks)
      : listener_(std::move(listener)), secret_(std::move(secret)), ranks_(ranks) {}

  void gather(std::chrono::milliseconds patience) {
    const auto deadline = SteadyClock::now() + patience;
    while (static_cast<int>(members_.size()) < ranks_ && SteadyClock::now() < deadline) {
      wait(deadline, true);
    }
    strangers_.clear();
  }

  Result<NetworkReport> run(std::optional<NetworkWay> asked) {
    NetworkReport report;
    choose(asked, report);
    for (const Member* member : order_) report.names.push_back(member->name);
    const auto begin = SteadyClock::now();
    NetworkCheck check(static_cast<int32_t>(order_.size()));
    for (int64_t round = 1;; ++round) {
      const auto pairs = check.next_round();
      if (pairs.empty()) break;
      HP_TRY(begin_round(round, pairs));
      const auto deadline = SteadyClock::now() + answer_patience(way_);
      while (is_waiting_for(pairs) && SteadyClock::now() < deadline) wait(deadline, false);
      check.learn(outcomes_of(pairs, report.troubles));
      compare_clocks();
    }
    report.seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    report.verdict = check.verdict();
    describe_networks(report);
    for (const auto& [index, ahead_ms] : clocks_.far_off_ms()) {
      report.clocks_ahead_ms[order_[static_cast<size_t>(index)]->name] = ahead_ms;
    }
    for (auto& [rank, member] : members_) say(member, json_text(nlohmann::json{{"done", true}}));
    flush_all();
    return report;
  }

 private:
  // Chooses the members and their transport.
  void choose(std::optional<NetworkWay> asked, NetworkReport& report) {
    std::vector<NodeMeans> means;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (!members_.contains(rank)) report.absent.push_back(rank);
    }
    for (const auto& [rank, member] : members_) means.push_back(member.means);
    const ChosenWay chosen = choose_way(asked, means);
    report.way = way_ = chosen.way;
    int32_t index = 0;
    for (auto& [rank, member] : members_) {
      const int32_t node = index++;
      if (!chosen.left_out.contains(node)) order_.push_back(&member);
      if (const auto why = chosen.unable.find(node); why != chosen.unable.end()) {
        report.unable[member.name] = why->second;
      }
      if (const auto why = chosen.fallbacks.find(node); why != chosen.fallbacks.end()) {
        report.fallbacks[member.name] = why->second;
      }
    }
  }

  void describe_networks(NetworkReport& report) const {
    report.by = way_ == NetworkWay::kTcp ? "TCP" : way_ == NetworkWay::kNccl ? "NCCL" : "libfabric";
    if (way_ == NetworkWay::kTcp) return;
    std::map<int32_t, NodeNetwork> networks;
    std::map<std::string, size_t> count;
    for (size_t i = 0; i < order_.size(); ++i) {
      const Member& member = *order_[i];
      if (member.network.network.empty()) continue;
      networks[static_cast<int32_t>(i)] = {member.network, member.means.efa_devices};
      const std::string nccl =
          way_ == NetworkWay::kNccl ? "NCCL " + member.means.nccl + " over " : "";
      const std::string by = nccl + to_text(member.network);
      if (++count[by] > count[report.by]) report.by = by;
    }
    if (way_ != NetworkWay::kNccl) return;  // libfabric's were known before
    for (const auto& [index, why] : find_fallbacks(networks)) {
      report.fallbacks[order_[static_cast<size_t>(index)]->name] = why;
    }
  }

  static void say(Member& member, const std::string& text) {
    if (member.stream != nullptr && !member.stream->send(text).ok()) member.stream.reset();
  }

  static void send_order(Member& member, const nlohmann::json& order) {
    member.ordered_ms = SystemClock().wall_ms();
    say(member, json_text(order));
  }

  void compare_clocks() {
    for (size_t i = 0; i < order_.size(); ++i) {
      const Member& member = *order_[i];
      if (!member.clock_ms) continue;
      clocks_.learn(static_cast<int32_t>(i), member.ordered_ms, *member.clock_ms);
    }
  }

  Outcome begin_round(int64_t round, const std::vector<NodePair>& pairs) {
    round_ = round;
    for (Member* member : order_) {
      member->transfer.reset();
      member->clock_ms.reset();
    }
    for (const NodePair& pair : pairs) {
      Member& dials = *order_[static_cast<size_t>(pair.a)];
      Member& waits = *order_[static_cast<size_t>(pair.b)];
      HP_TRY_ASSIGN(const std::string word, random_hex(16));
      nlohmann::json order = {
          {"round", round}, {"way", to_word(way_)}, {"word", word}, {"address", ""}};
      send_order(waits, order);
      order["address"] = waits.address;
      send_order(dials, order);
    }
    return Ok{};
  }

  bool is_waiting_for(const std::vector<NodePair>& pairs) const {
    const auto is_awaited = [&](int32_t index) {
      const Member& member = *order_[static_cast<size_t>(index)];
      return member.stream != nullptr && !member.transfer;
    };
    return std::any_of(pairs.begin(), pairs.end(), [&](const NodePair& pair) {
      return is_awaited(pair.a) || is_awaited(pair.b);
    });
  }

  // Records the errors of bad pairs.
  std::vector<PairOutcome> outcomes_of(const std::vector<NodePair>& pairs,
                                       std::map<NodePair, std::string>& troubles) const {
    std::vector<PairOutcome> outcomes;
    for (const NodePair& pair : pairs) {
      PairOutcome outcome{pair, true, std::numeric_limits<double>::infinity()};
      std::string trouble;
      for (const int32_t index : {pair.a, pair.b}) {
        const Member& member = *order_[static_cast<size_t>(index)];
        const Transfer said = member.transfer.value_or(Transfer{0, "it did not answer", ""});
        outcome.carried = outcome.carried && said.bytes_per_s > 0;
        outcome.bytes_per_s = std::min(outcome.bytes_per_s, said.bytes_per_s);
        outcome.wrong = outcome.wrong || !said.wrong.empty();
        for (const std::string& words : {said.wrong, said.trouble}) {
          if (words.empty()) continue;
          trouble += (trouble.empty() ? "" : "; ") + member.name + ": " + words;
        }
      }
      if (!trouble.empty()) troubles[pair] = trouble;
      outcomes.push_back(outcome);
    }
    return outcomes;
  }

  // Until something happened, or the deadline.
  void wait(SteadyClock::time_point deadline, bool gathers) {
    std::vector<pollfd> entries;
    std::vector<Member*> of_entry;
    for (auto& [rank, member] : members_) {
      if (member.stream == nullptr) continue;
      const auto events = static_cast<short>(POLLIN | (member.stream->has_unsent() ? POLLOUT : 0));
      entries.push_back({member.stream->fd(), events, 0});
      of_entry.push_back(&member);
    }
    const size_t first_stranger = entries.size();
    if (gathers) {
      for (const auto& stranger : strangers_) entries.push_back({stranger->fd(), POLLIN, 0});
      entries.push_back({listener_.get(), POLLIN, 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
    const auto wait_ms = static_cast<int>(std::max<int64_t>(0, left.count()));
    if (::poll(entries.data(), entries.size(), wait_ms) <= 0) return;
    for (size_t i = 0; i < of_entry.size(); ++i) {
      if (entries[i].revents != 0) hear(*of_entry[i]);
    }
    if (!gathers) return;
    for (size_t i = entries.size() - 1; i-- > first_stranger;) {
      if (entries[i].revents != 0) meet(i - first_stranger);
    }
    if (entries.back().revents != 0) accept_one();
  }

  void accept_one() {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) return;
    if (strangers_.size() >= static_cast<size_t>(ranks_) + kStrangers) {
      strangers_.erase(strangers_.begin());
    }
    auto stream = std::make_unique<FrameStream>(std::move(fd));
    if (!stream->authenticate(secret_, FrameStream::Side::kAccepted).ok()) return;
    strangers_.push_back(std::move(stream));
  }

  // The stranger says who it is, or goes.
  void meet(size_t index) {
    auto packet = strangers_[index]->receive();
    if (packet.ok() && !*packet) return;
    std::unique_ptr<FrameStream> stream = std::move(strangers_[index]);
    strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(index));
    if (!packet.ok()) return;
    try {
      const auto message = parse_message(**packet);
      const int rank = message.at("rank").get<int>();
      if (rank < 0 || rank >= ranks_) return;
      Member member{
          std::move(stream),
          printable_line(message.at("name").get<std::string>(), kMaxNameBytes),
          message.at("address").get<std::string>(),
          {message.value("gpus", 0), words_of_member(message, "nccl"),
           words_of_member(message, "nccl_trouble"), message.value("efa_devices", 0),
           words_of_member(message, "fabric"), words_of_member(message, "fabric_trouble")},
          {},
          0,
          {},
          {}};
      members_.insert_or_assign(rank, std::move(member));
    } catch (const nlohmann::json::exception&) {
      return;  // of another version: it is absent
    }
  }

  void hear(Member& member) {
    if (!member.stream->flush().ok()) {
      member.stream.reset();
      return;
    }
    for (;;) {
      auto packet = member.stream->receive();
      if (packet.ok() && !*packet) return;
      if (!packet.ok()) {
        member.stream.reset();
        return;
      }
      try {
        const auto message = parse_message(**packet);
        if (message.at("round").get<int64_t>() != round_) continue;  // it was late
        member.transfer =
            Transfer{message.at("bytes_per_s").get<double>(), words_of_member(message, "trouble"),
                     words_of_member(message, "wrong")};
        if (message.contains("clock_ms")) member.clock_ms = message["clock_ms"].get<int64_t>();
        UsedNetwork network{words_of_member(message, "network"),
                            words_of_member(message, "provider"),
                            words_of_member(message, "network_trouble")};
        if (!network.network.empty()) member.network = std::move(network);
      } catch (const nlohmann::json::exception&) {
        member.stream.reset();
        return;
      }
    }
  }

  void flush_all() {
    const auto deadline = SteadyClock::now() + kDrainPatience;
    for (auto& [rank, member] : members_) {
      while (member.stream != nullptr && member.stream->has_unsent() &&
             SteadyClock::now() < deadline) {
        wait(deadline, false);
      }
    }
  }

  const UniqueFd listener_;
  const std::string secret_;
  const int ranks_;
  std::map<int, Member> members_;
  std::vector<std::unique_ptr<FrameStream>> strangers_;
  std::vector<Member*> order_;  // those that take part
  ClockOffsets clocks_;         // by place in `order_`
  NetworkWay way_ = NetworkWay::kTcp;
  int64_t round_ = 0;
};

}  // namespace

Result<NetworkReport> coordinate(const CoordinatorOptions& options) {
  const std::string ip = node_address();
  HP_TRY_ASSIGN(UniqueFd listener, listen_at(ip));
  HP_TRY_ASSIGN(const SocketAddress own, SocketAddress::of_socket(listener.get()));
  HP_TRY_ASSIGN(const std::string secret, random_hex(32));
  const Meeting meeting{ip + ":" + std::to_string(own.port()), secret};
  Coordinator coordinator(std::move(listener), secret, options.ranks);
  HP_TRY(write_file_atomic(options.meeting_path, to_text(meeting)));
  coordinator.gather(options.patience);
  ::unlink(options.meeting_path.c_str());
  return coordinator.run(options.way);
}

}  // namespace hpctl::agent
