// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/network/gpu_ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "agent/nodecheck/core/known_sums.h"
#include "agent/nodecheck/network/gpu_rank.h"
#include "agent/nodecheck/network/messages.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/net/frame.h"
#include "common/process/memory_file.h"

namespace hpctl::agent {
namespace {

constexpr size_t kMaxLogBytes = 1U << 20;
constexpr int kMostGpus = kMostSummedRanks / 2;
// For the answer itself, beyond what was allowed for the work.
constexpr auto kRankMargin = std::chrono::milliseconds(2'000);

// The content of a frame, or the error in it.
Result<nlohmann::json> meaning_of(const std::string& frame) {
  try {
    nlohmann::json message = parse_message(frame);
    if (!message.contains("error")) return message;
    return Error{ErrorCode::kUnavailable, message.at("error").get<std::string>()};
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, std::string("this message cannot be read: ") + e.what()};
  }
}

Result<nlohmann::json> hear(int socket, int64_t deadline_ms) {
  HP_TRY_ASSIGN(const std::string frame, read_frame(socket, deadline_ms));
  return meaning_of(frame);
}

Result<int> gpus_of(const nlohmann::json& message) {
  const auto found = message.find("gpus");
  const int gpus = found == message.end() ? 0 : whole_number<int>(*found).value_or(0);
  if (gpus >= 1 && gpus <= kMostGpus) return gpus;
  return Error{ErrorCode::kInvalidArgument,
               std::to_string(gpus) + " GPUs of a node cannot be checked together"};
}

Error of_gpu(size_t device, const Error& error) {
  return {error.code, "GPU " + std::to_string(device) + ": " + error.message};
}

}  // namespace

GpuRanks::~GpuRanks() {
  for (Rank& rank : ranks_) end(rank);
}

void GpuRanks::end(Rank& rank) {
  if (!rank.socket.valid()) return;
  ::kill(rank.process.pid, SIGKILL);
  ::waitpid(rank.process.pid, nullptr, 0);
  rank.socket.reset();
}

Result<GpuRanks::Rank> GpuRanks::start(int device) const {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return errno_error("cannot make a pair of sockets");
  }
  Rank rank;
  rank.socket.reset(ends[0]);
  const UniqueFd of_child(ends[1]);
  HP_TRY_ASSIGN(rank.log, make_memory_file("hpctl-nccl-log", ""));
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  SpawnPlan plan;
  plan.program = program_;
  plan.argv = {program_, "check", "network", "--gpu", std::to_string(device)};
  plan.env = environment_with({});
  static_assert(kGpuRankSocket == 3);
  plan.descriptors = {null.get(), rank.log.get(), rank.log.get(), of_child.get()};
  HP_TRY_ASSIGN(rank.process, spawn_process(plan));
  return rank;
}

NodeMeans GpuRanks::open() {
  NodeMeans means;
  const auto open_all = [&]() -> Outcome {
    HP_TRY_ASSIGN(Rank first, start(0));
    ranks_.push_back(std::move(first));
    HP_TRY_ASSIGN(const auto hello, hear(ranks_[0].socket.get(), frame_deadline(kNcclStartLimit)));
    HP_TRY_ASSIGN(gpus_, gpus_of(hello));
    means.nccl = hello.value("nccl", "");
    ranks_.resize(static_cast<size_t>(gpus_));
    return restart_missing();
  };
  const Outcome opened = open_all();
  if (opened.ok()) {
    means.gpus = gpus_;
  } else {
    means.nccl_trouble = opened.error().message;
  }
  return means;
}

// Together, since each takes seconds.
Outcome GpuRanks::restart_missing() {
  std::vector<size_t> fresh;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].socket.valid()) continue;
    HP_TRY_ASSIGN(ranks_[i], start(static_cast<int>(i)));
    fresh.push_back(i);
  }
  const int64_t deadline = frame_deadline(kNcclStartLimit);
  for (const size_t i : fresh) {
    const auto hello = hear(ranks_[i].socket.get(), deadline);
    if (hello.ok()) continue;
    end(ranks_[i]);
    return of_gpu(i, hello.error());
  }
  return Ok{};
}

Result<std::string> GpuRanks::agree_on_id(int connection, bool dialled, int& peer_gpus) {
  const int64_t deadline = frame_deadline(kMeetPatience);
  HP_TRY(write_frame(connection, json_text(nlohmann::json{{"gpus", gpus_}}), deadline));
  HP_TRY_ASSIGN(const auto peer, hear(connection, deadline));
  HP_TRY_ASSIGN(peer_gpus, gpus_of(peer));
  if (!dialled) {
    HP_TRY_ASSIGN(const auto message, hear(connection, deadline));
    return message.value("id", "");
  }
  HP_TRY(write_frame(ranks_[0].socket.get(), R"({"make_id": true})", deadline));
  HP_TRY_ASSIGN(const std::string answer, read_frame(ranks_[0].socket.get(), deadline));
  HP_TRY(write_frame(connection, answer, deadline));
  HP_TRY_ASSIGN(const auto message, meaning_of(answer));
  return message.value("id", "");
}

Result<Transfer> GpuRanks::try_to_reduce(int connection, bool dialled) {
  HP_TRY(restart_missing());
  int peer_gpus = 0;
  HP_TRY_ASSIGN(const std::string id, agree_on_id(connection, dialled, peer_gpus));
  const int first = dialled ? 0 : peer_gpus;
  const int64_t deadline = frame_deadline(kNcclInitLimit + kNcclTransferLimit + kRankMargin);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const nlohmann::json order = {{"id", id},
                                  {"rank", first + static_cast<int>(i)},
                                  {"ranks", gpus_ + peer_gpus},
                                  {"init_ms", kNcclInitLimit.count()},
                                  {"transfer_ms", kNcclTransferLimit.count()}};
    HP_TRY(write_frame(ranks_[i].socket.get(), json_text(order), deadline));
  }
  Transfer all{std::numeric_limits<double>::infinity(), "", ""};
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto answer = hear(ranks_[i].socket.get(), deadline);
    // Whatever it is doing now, the next round does not wait for it.
    if (!answer.ok()) end(ranks_[i]);
    if (!answer.ok() && all.trouble.empty()) all.trouble = of_gpu(i, answer.error()).message;
    if (!answer.ok()) continue;
    all.bytes_per_s = std::min(all.bytes_per_s, answer->value("bytes_per_s", 0.0));
    const std::string wrong = answer->value("wrong", "");
    if (!wrong.empty() && all.wrong.empty()) all.wrong = "GPU " + std::to_string(i) + ": " + wrong;
  }
  if (!all.trouble.empty()) all.bytes_per_s = 0;
  return all;
}

Transfer GpuRanks::reduce_with_peer(int connection, bool dialled) {
  const auto transfer = try_to_reduce(connection, dialled);
  return transfer.ok() ? *transfer : Transfer{0, transfer.error().message, ""};
}

UsedNetwork GpuRanks::network() const {
  if (ranks_.empty()) return {};
  std::string log(kMaxLogBytes, '\0');
  const ssize_t n = ::pread(ranks_[0].log.get(), log.data(), log.size(), 0);
  log.resize(static_cast<size_t>(std::max<ssize_t>(0, n)));
  return read_nccl_log(log);
}

}  // namespace hpctl::agent
