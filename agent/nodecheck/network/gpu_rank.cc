// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/network/gpu_rank.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "agent/nodecheck/core/known_sums.h"
#include "agent/nodecheck/network/messages.h"
#include "common/base/json_text.h"
#include "common/base/random_hex.h"
#include "common/gpu/cuda_api.h"
#include "common/gpu/nccl_api.h"
#include "common/net/frame.h"

namespace hpctl::agent {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr size_t kReducedFloats = size_t{4} << 20;
constexpr size_t kReducedBytes = kReducedFloats * sizeof(float);
constexpr auto kReduceTime = std::chrono::milliseconds(400);
// CUDA and NCCL offer nothing to wait on: as the trainer (trainer/comm/nccl_communicator.cc).
constexpr std::chrono::microseconds kPollEvery{50};

struct RankOrder {
  nccl::UniqueId id{};
  int rank = 0;
  int ranks = 0;
  std::chrono::milliseconds init_limit{0};
  std::chrono::milliseconds transfer_limit{0};
};

struct Reduced {
  double bytes_per_s = 0;
  std::string wrong;
};

// A GPU with what all rounds use.
class Gpu {
 public:
  explicit Gpu(const cuda::Api& cuda) : cuda_(cuda) {}
  ~Gpu() {
    if (event_ != nullptr) cuda_.event_destroy(event_);
    if (stream_ != nullptr) cuda_.stream_destroy(stream_);
    for (void* memory : {given_, reduced_}) {
      if (memory != nullptr) cuda_.free(memory);
    }
    if (host_ != nullptr) cuda_.host_free(host_);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  Outcome open(int device) {
    HP_TRY(check("use GPU " + std::to_string(device), cuda_.set_device(device)));
    HP_TRY(check("make a stream", cuda_.stream_create(&stream_, cuda::kStreamNonBlocking)));
    HP_TRY(check("make an event", cuda_.event_create(&event_, cuda::kEventDisableTiming)));
    HP_TRY(check("take memory of the GPU", cuda_.malloc(&given_, kReducedBytes)));
    HP_TRY(check("take memory of the GPU", cuda_.malloc(&reduced_, kReducedBytes)));
    return check("take page-locked memory", cuda_.host_malloc(&host_, kReducedBytes));
  }
  Outcome check(const std::string& what, cuda::Status status) const {
    if (status == cuda::kSuccess) return Ok{};
    return cuda::error(cuda_, what, status);
  }

  Outcome copy_in(size_t floats) const {
    return check("copy to the GPU", cuda_.copy_async(given_, host_, floats * sizeof(float),
                                                     cuda::kCopyDefault, stream_));
  }
  Outcome copy_out(size_t floats) const {
    return check("copy from the GPU", cuda_.copy_async(host_, reduced_, floats * sizeof(float),
                                                       cuda::kCopyDefault, stream_));
  }
  Outcome mark() const { return check("record an event", cuda_.event_record(event_, stream_)); }
  // Has all been done that was there at mark()?
  cuda::Status query() const { return cuda_.event_query(event_); }

  cuda::Stream stream() const { return stream_; }
  const void* given() const { return given_; }
  void* reduced() const { return reduced_; }
  float* host() const { return static_cast<float*>(host_); }

 private:
  const cuda::Api& cuda_;
  cuda::Stream stream_ = nullptr;
  cuda::Event event_ = nullptr;
  void* given_ = nullptr;
  void* reduced_ = nullptr;
  void* host_ = nullptr;
};

// One communicator, from its making to its abort.
class Round {
 public:
  Round(const nccl::Api& nccl, const Gpu& gpu, const RankOrder& order)
      : nccl_(nccl), gpu_(gpu), order_(order) {}
  // Not finalized: that waits for every peer, and one may be gone.
  ~Round() {
    if (comm_ != nullptr) nccl_.abort(comm_);
  }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  Result<Reduced> run() {
    deadline_ = SteadyClock::now() + order_.init_limit;
    HP_TRY(connect());
    prepare_sums();
    HP_TRY(gpu_.copy_in(kReducedFloats));
    HP_TRY_ASSIGN(const bool over_at_once, reduce(kReducedFloats));
    static_cast<void>(over_at_once);
    Reduced reduced;
    reduced.wrong = judge();
    // Also then, since the others go on.
    HP_TRY_ASSIGN(reduced.bytes_per_s, measure());
    // The last of them whole: what went wrong meanwhile may show in it.
    HP_TRY(gpu_.copy_out(kReducedFloats));
    HP_TRY(settle("the last copy"));
    gpu_.host()[0] = sums_[0];  // it says that all have had enough
    if (reduced.wrong.empty()) reduced.wrong = judge();
    return reduced;
  }

 private:
  Error failed(const std::string& what, nccl::Status status) const {
    const char* detail = comm_ == nullptr ? nullptr : nccl_.last_error(comm_);
    const std::string words = detail == nullptr ? "" : detail;
    return {ErrorCode::kUnavailable, what + ": NCCL: " + nccl_.error_string(status) +
                                         (words.empty() ? "" : " (" + words + ")")};
  }

  // Until the communicator is not busy and `is_done` does not say kNotReady any more.
  Outcome await(const std::string& what, const std::function<cuda::Status()>& is_done) {
    for (;;) {
      nccl::Status state = nccl::kSuccess;
      const nccl::Status asked = nccl_.async_error(comm_, &state);
      if (asked != nccl::kSuccess) state = asked;
      if (state != nccl::kSuccess && state != nccl::kInProgress) return failed(what, state);
      const cuda::Status status = state == nccl::kInProgress ? cuda::kNotReady : is_done();
      if (status != cuda::kNotReady) return gpu_.check(what, status);
      if (SteadyClock::now() > deadline_) {
        return Error{ErrorCode::kUnavailable, what + " did not end in time"};
      }
      std::this_thread::sleep_for(kPollEvery);
    }
  }
  Outcome settle(const std::string& what) {
    HP_TRY(gpu_.mark());
    return await(what, [this] { return gpu_.query(); });
  }

  Outcome connect() {
    nccl::Config config;
    config.blocking = 0;
    const nccl::Status status =
        nccl_.init_rank(&comm_, order_.ranks, order_.id, order_.rank, &config);
    if (status != nccl::kSuccess && status != nccl::kInProgress) {
      return failed("making a communicator", status);
    }
    HP_TRY(await("making a communicator", [] { return cuda::kSuccess; }));
    deadline_ = SteadyClock::now() + order_.transfer_limit;
    return Ok{};
  }

  void prepare_sums() {
    sums_.resize(kReducedFloats);
    for (size_t i = 0; i < kReducedFloats; ++i) {
      gpu_.host()[i] = known_value(order_.rank, i);
      sums_[i] = known_sum(order_.ranks, i);
    }
    gpu_.host()[0] = sums_[0] = 0;  // nobody has had enough
  }

  // All-reduces the given values and reads this many of the sums. Returns whether some rank has had
  // enough.
  Result<bool> reduce(size_t floats_to_read) {
    const nccl::Status status = nccl_.all_reduce(gpu_.given(), gpu_.reduced(), kReducedFloats,
                                                 nccl::kFloat32, nccl::kSum, comm_, gpu_.stream());
    if (status == nccl::kInProgress) {
      HP_TRY(await("an all-reduce", [] { return cuda::kSuccess; }));
    } else if (status != nccl::kSuccess) {
      return failed("an all-reduce", status);
    }
    HP_TRY(gpu_.copy_out(floats_to_read));
    HP_TRY(settle("an all-reduce"));
    return gpu_.host()[0] != 0;
  }

  Result<double> measure() {
    const auto begin = SteadyClock::now();
    size_t reductions = 0;
    for (bool is_over = false; !is_over; ++reductions) {
      gpu_.host()[0] = SteadyClock::now() - begin >= kReduceTime ? 1 : 0;
      HP_TRY(gpu_.copy_in(1));
      HP_TRY_ASSIGN(is_over, reduce(1));
    }
    const double seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    const double bytes = static_cast<double>(kReducedBytes) * static_cast<double>(reductions);
    return bytes / seconds * 2 * (order_.ranks - 1) / order_.ranks;
  }

  std::string judge() const {
    const WrongSums wrong = find_wrong_sums(gpu_.host(), sums_);
    if (wrong.count == 0) return "";
    return std::to_string(wrong.count) + " of " + std::to_string(kReducedFloats) +
           " sums are wrong, the first at " + std::to_string(wrong.first) + ": " +
           std::to_string(gpu_.host()[wrong.first]) + " instead of " +
           std::to_string(sums_[wrong.first]);
  }

  const nccl::Api& nccl_;
  const Gpu& gpu_;
  const RankOrder order_;
  nccl::Comm* comm_ = nullptr;
  SteadyClock::time_point deadline_;
  std::vector<float> sums_;
};

void answer(const nlohmann::json& message) {
  // A parent that is gone ends this process, too.
  static_cast<void>(write_frame(kGpuRankSocket, json_text(message), kNoDeadline));
}
void answer(const Error& error) { answer(nlohmann::json{{"error", error.message}}); }

std::string to_hex(const nccl::UniqueId& id) { return hpctl::to_hex({id.bytes, sizeof id.bytes}); }

Result<RankOrder> order_of(const nlohmann::json& message) {
  RankOrder order;
  const auto id = from_hex(message.at("id").get<std::string>());
  if (!id || id->size() != sizeof order.id.bytes) {
    return Error{ErrorCode::kDataLoss, "the id is not one of NCCL's"};
  }
  std::memcpy(order.id.bytes, id->data(), id->size());
  order.rank = message.at("rank").get<int>();
  order.ranks = message.at("ranks").get<int>();
  order.init_limit = std::chrono::milliseconds(message.at("init_ms").get<int>());
  order.transfer_limit = std::chrono::milliseconds(message.at("transfer_ms").get<int>());
  if (order.ranks > kMostSummedRanks) {
    return Error{ErrorCode::kInvalidArgument,
                 "the two nodes have more than " + std::to_string(kMostSummedRanks) + " GPUs"};
  }
  return order;
}

Result<nlohmann::json> obey(const nlohmann::json& message, const nccl::Api& nccl, const Gpu& gpu) {
  if (message.contains("make_id")) {
    nccl::UniqueId id{};
    const nccl::Status status = nccl.get_unique_id(&id);
    if (status == nccl::kSuccess) return nlohmann::json{{"id", to_hex(id)}};
    return Error{ErrorCode::kUnavailable,
                 std::string("making an id: NCCL: ") + nccl.error_string(status)};
  }
  HP_TRY_ASSIGN(const RankOrder order, order_of(message));
  HP_TRY_ASSIGN(const Reduced reduced, Round(nccl, gpu, order).run());
  return nlohmann::json{{"bytes_per_s", reduced.bytes_per_s}, {"wrong", reduced.wrong}};
}

// The log is how it is known which network NCCL uses; it goes to the output, which the parent
// keeps.
void have_nccl_talk() {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("NCCL_DEBUG_SUBSYS", "INIT,NET", 1);
  ::unsetenv("NCCL_DEBUG_FILE");
}

struct Opened {
  const nccl::Api* nccl = nullptr;
  std::unique_ptr<Gpu> gpu;
  int gpus = 0;
};

Result<Opened> open(int device) {
  have_nccl_talk();
  Opened opened;
  HP_TRY_ASSIGN(const cuda::Api* const cuda, cuda::load());
  const cuda::Status counted = cuda->device_count(&opened.gpus);
  if (counted != cuda::kSuccess) return cuda::error(*cuda, "count the GPUs", counted);
  if (opened.gpus == 0) return Error{ErrorCode::kNotFound, "there is no GPU"};
  HP_TRY_ASSIGN(opened.nccl, nccl::load());
  opened.gpu = std::make_unique<Gpu>(*cuda);
  HP_TRY(opened.gpu->open(device));
  return opened;
}

}  // namespace

int run_gpu_rank(int device) {
  const auto opened = open(device);
  if (!opened.ok()) {
    answer(opened.error());
    return 1;
  }
  int version = 0;
  opened->nccl->get_version(&version);
  answer({{"gpus", opened->gpus}, {"nccl", nccl::version_text(version)}});
  for (;;) {
    const auto frame = read_frame(kGpuRankSocket, kNoDeadline);
    if (!frame.ok()) return 0;
    try {
      const auto done = obey(parse_message(*frame), *opened->nccl, *opened->gpu);
      done.ok() ? answer(*done) : answer(done.error());
    } catch (const nlohmann::json::exception& e) {
      answer(Error{ErrorCode::kDataLoss, e.what()});
    }
  }
}

}  // namespace hpctl::agent
