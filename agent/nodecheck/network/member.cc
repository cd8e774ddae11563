// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/network/member.h"

#include <poll.h>

#include <cerrno>
#include <optional>

#include "agent/nodecheck/network/exchange.h"
#include "agent/nodecheck/network/fabric_rails.h"
#include "agent/nodecheck/network/gpu_ranks.h"
#include "agent/nodecheck/network/messages.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "common/net/frame_stream.h"
#include "common/net/node_address.h"
#include "common/net/socket_address.h"
#include "common/net/wait_for_fd.h"

namespace hpctl::agent {
namespace {

using SteadyClock = std::chrono::steady_clock;
// There is no notification of a new file on a shared file system.
constexpr int kLookAgainMs = 50;
// The coordinator waits for all to come, and says nothing in rounds that others have.
constexpr auto kSilencePatience = std::chrono::minutes(20);

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
  const int64_t deadline_ms = deadline_in(std::chrono::milliseconds(kSilencePatience).count());
  for (;;) {
    HP_TRY(coordinator.flush());
    HP_TRY_ASSIGN(auto packet, coordinator.receive());
    if (packet) return std::move(*packet);
    const auto events = static_cast<short>(POLLIN | (coordinator.has_unsent() ? POLLOUT : 0));
    if (!wait_for_fd(coordinator.fd(), events, deadline_ms).ok()) {
      return Error{ErrorCode::kUnavailable, "rank 0 says nothing any more"};
    }
  }
}

struct MeetOrder {
  int64_t round = 0;
  NetworkWay way = NetworkWay::kTcp;
  std::string word;
  std::string peer;      // "" = it comes here
  int64_t clock_ms = 0;  // when it came
};

std::string report_of(const MeetOrder& order, const Transfer& transfer,
                      const UsedNetwork& network) {
  return json_text(nlohmann::json{{"round", order.round},
                                  {"bytes_per_s", transfer.bytes_per_s},
                                  {"trouble", transfer.trouble},
                                  {"wrong", transfer.wrong},
                                  {"network", network.network},
                                  {"provider", network.provider},
                                  {"network_trouble", network.trouble},
                                  {"clock_ms", order.clock_ms}});
}

class Participant {
 public:
  Participant(const MemberOptions& options, Joined joined, UniqueFd listener)
      : options_(options),
        coordinator_(std::move(joined.coordinator)),
        own_ip_(std::move(joined.own_ip)),
        listener_(std::move(listener)),
        gpus_(options.program),
        fabric_(options.program) {}

  Outcome take_part() {
    HP_TRY(say_hello());
    for (;;) {
      HP_TRY_ASSIGN(const std::string text, next_message(coordinator_));
      const int64_t clock_ms = SystemClock().wall_ms();
      try {
        const auto message = parse_message(text);
        if (message.contains("done")) return Ok{};
        HP_TRY(coordinator_.send(
            obey({message.at("round").get<int64_t>(),
                  from_word<NetworkWay>(message.value("way", "")).value_or(NetworkWay::kTcp),
                  message.at("word").get<std::string>(), message.at("address").get<std::string>(),
                  clock_ms})));
      } catch (const nlohmann::json::exception& e) {
        return Error{ErrorCode::kDataLoss,
                     std::string("the message of rank 0 cannot be read: ") + e.what()};
      }
    }
  }

 private:
  Outcome say_hello() {
    HP_TRY_ASSIGN(const SocketAddress own, SocketAddress::of_socket(listener_.get()));
    const NodeMeans means = open_means();
    return coordinator_.send(
        json_text(nlohmann::json{{"rank", options_.rank},
                                 {"name", options_.name},
                                 {"address", own.ip() + ":" + std::to_string(own.port())},
                                 {"efa_devices", means.efa_devices},
                                 {"gpus", means.gpus},
                                 {"nccl", means.nccl},
                                 {"nccl_trouble", means.nccl_trouble},
                                 {"fabric", means.fabric},
                                 {"fabric_trouble", means.fabric_trouble}}));
  }

  // The means that the requested transport needs; without a request, all that it may use.
  NodeMeans open_means() {
    NodeMeans means;
    if (options_.way.value_or(NetworkWay::kNccl) == NetworkWay::kNccl) means = gpus_.open();
    means.efa_devices = options_.efa_devices;
    if (options_.way == NetworkWay::kFabric ||
        (!options_.way && means.gpus == 0 && means.efa_devices > 0)) {
      fabric_.open(own_ip_, means);
    } else {
      means.fabric_trouble = "it has no EFA device, and no option names libfabric";
    }
    return means;
  }

  std::string obey(const MeetOrder& order) {
    const bool dials = !order.peer.empty();
    const auto connection =
        dials ? dial(order.peer, order.word) : await(listener_.get(), order.word);
    if (!connection.ok()) return report_of(order, {0, connection.error().message, ""}, {});
    if (order.way == NetworkWay::kTcp) return report_of(order, exchange(connection->get()), {});
    if (order.way == NetworkWay::kFabric) {
      return report_of(order, fabric_.exchange_with_peer(connection->get(), dials),
                       fabric_.network());
    }
    const Transfer transfer = gpus_.reduce_with_peer(connection->get(), dials);
    return report_of(order, transfer, gpus_.network());
  }

  const MemberOptions& options_;
  FrameStream coordinator_;
  const std::string own_ip_;
  const UniqueFd listener_;
  GpuRanks gpus_;
  FabricRails fabric_;
};

}  // namespace

Outcome be_member(const MemberOptions& options) {
  HP_TRY_ASSIGN(Joined joined, find_coordinator(options));
  HP_TRY_ASSIGN(UniqueFd listener, listen_at(joined.own_ip));
  return Participant(options, std::move(joined), std::move(listener)).take_part();
}

}  // namespace hpctl::agent
