// SPDX-License-Identifier: Apache-2.0
// Messages between our own processes: packets, and streams of them.
#include <fcntl.h>
#include <sys/socket.h>

#include <utility>
#include <variant>

#include "agent/holder/holder_protocol.h"
#include "common/base/clock.h"
#include "common/net/frame.h"
#include "common/net/frame_stream.h"
#include "common/net/hmac.h"
#include "common/worker/step_protocol.h"
#include "common/worker/worker_control.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/properties.h"

namespace hpctl::fuzz {
namespace {

// Both directions read the same bytes. A packet has one form only: what is written is what was
// read.
template <typename Decode>
void run_packet(std::string_view input, const Decode& decode) {
  const auto message = decode(input);
  if (!message.ok()) return require_explained(message.error());
  require(encode(*message) == input, "a packet that is written otherwise");
}

// One packet of each kind with its first values.
template <typename Variant, size_t... I>
void add_kinds(std::vector<std::string>& packets, std::index_sequence<I...> /*kinds*/) {
  (packets.push_back(encode(Variant(std::in_place_index<I>))), ...);
}

template <typename... Variants>
std::vector<std::string> packets_of() {
  std::vector<std::string> packets;
  (add_kinds<Variants>(packets, std::make_index_sequence<std::variant_size_v<Variants>>()), ...);
  return packets;
}

void require_known(const holder::ToAgent& message) {
  if (const auto* state = std::get_if<holder::WorkerState>(&message)) {
    require(state->part <= holder::WorkerPart::kIdle, "a part that there is not");
    require(state->origin <= WorkerOrigin::kStandby, "an origin that there is not");
  }
  if (const auto* exited = std::get_if<holder::Exited>(&message)) {
    for (const BadStep& step : exited->bad_step) {
      require(step.finding >= BadStepFinding::kNotFinite &&
                  step.finding <= BadStepFinding::kGradientSpike &&
                  step.verdict <= BadStepVerdict::kOtherResult &&
                  step.outcome >= BadStepOutcome::kSkipped &&
                  step.outcome <= BadStepOutcome::kGaveUp,
              "a bad step of a kind that there is not");
    }
  }
}

void run_holder_packet(std::string_view input) {
  run_packet(input, holder::decode_to_holder);
  const auto to_agent = holder::decode_to_agent(input);
  if (!to_agent.ok()) return require_explained(to_agent.error());
  require_known(*to_agent);
}

std::vector<std::string> holder_packet_seeds() {
  auto packets = packets_of<holder::ToHolder, holder::ToAgent>();
  holder::Spawn spawn;
  spawn.argv = {"python3", "train.py"};
  spawn.env = {"A=b"};
  packets.push_back(encode(holder::ToHolder(spawn)));
  holder::Exited exited;
  exited.message = "Connection closed by peer";
  exited.bad_step = {BadStep{}, BadStep{}};
  exited.seals = {{{1, 2, 3}}, {{4, 5, 6}}, 0, 2, 1};
  packets.push_back(encode(holder::ToAgent(exited)));
  return packets;
}

void run_worker_packet(std::string_view input) {
  run_packet(input, control::decode_to_worker);
  run_packet(input, control::decode_from_worker);
}

void run_shim_packet(std::string_view input) {
  run_packet(input, step::decode_to_controller);
  run_packet(input, step::decode_to_shim);
}

std::pair<UniqueFd, UniqueFd> connected() {
  int ends[2] = {-1, -1};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
          "no socket");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// The other end says these bytes and hangs up. More than a socket holds is no part of the input.
UniqueFd told(std::string_view input) {
  auto [ours, theirs] = connected();
  const ssize_t sent = ::send(theirs.get(), input.data(), input.size(), MSG_NOSIGNAL);
  require(sent >= 0 || input.empty(), "cannot send an input");
  return std::move(ours);
}

// Until the stream ends; at most so many as there can be.
size_t count_packets(FrameStream& stream, size_t most, std::string& bytes) {
  for (size_t packets = 0;; ++packets) {
    require(packets <= most, "more packets than bytes");
    auto packet = stream.receive();
    if (!packet.ok()) {
      require_explained(packet.error());
      return packets;
    }
    if (!*packet) return packets;
    require((*packet)->size() <= kMaxStreamFrameBytes, "a packet that is too large");
    const auto length = static_cast<uint32_t>((*packet)->size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof(length)).append(**packet);
  }
}

constexpr const char* kSecret = "0123456789abcdef";

void run_stream(std::string_view input) {
  std::string bytes;
  FrameStream open(told(input));
  count_packets(open, input.size(), bytes);
  require(input.starts_with(bytes), "packets of other bytes");
  // Who does not know the secret makes no packet. (The seeds hold none that is proven.)
  FrameStream proven(told(input));
  require(proven.authenticate(kSecret, FrameStream::Side::kAccepted).ok(), "cannot begin");
  require(count_packets(proven, input.size(), bytes) == 0, "an unproven packet is taken");
}

void run_frame(std::string_view input) {
  const UniqueFd stream = told(input);
  const SystemClock clock;
  std::string bytes;
  for (;;) {
    const auto frame = read_frame(stream.get(), clock.monotonic_ms() + 10'000);
    if (!frame.ok()) {
      require_explained(frame.error());
      require(frame.error().code != ErrorCode::kUnavailable, "it waits for who has hung up");
      break;
    }
    const auto length = static_cast<uint32_t>(frame->size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof(length)).append(*frame);
  }
  require(input.starts_with(bytes), "frames of other bytes");
}

std::vector<std::string> stream_seeds() {
  const auto framed = [](const std::string& packet) {
    const auto length = static_cast<uint32_t>(packet.size());
    return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + packet;
  };
  std::string all;
  for (const std::string& packet : packets_of<step::ToController>()) all += framed(packet);
  return {all, framed(std::string(32, 'n')) + framed("packet" + std::string(kHmacBytes, 't')),
          framed("") + framed(""), framed(R"({"call":"version","arguments":{}})")};
}

}  // namespace

std::vector<Harness> frame_harnesses() {
  return {{"holder_packet", run_holder_packet, holder_packet_seeds},
          {"worker_packet", run_worker_packet, packets_of<control::ToWorker, control::FromWorker>},
          {"shim_packet", run_shim_packet, packets_of<step::ToController, step::ToShim>},
          {"stream", run_stream, stream_seeds},
          {"frame", run_frame, stream_seeds}};
}

}  // namespace hpctl::fuzz
