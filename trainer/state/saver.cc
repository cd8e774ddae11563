// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/saver.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <span>
#include <utility>

#include "common/base/file.h"
#include "common/base/log.h"
#include "trainer/checkpoint/commit.h"
#include "trainer/parallel/bf16_rounding.h"

namespace hpctl {

namespace {

// What one rank has to tell the others: its work's result, or why it failed.
std::string encode_outcome(const Result<std::string>& outcome) {
  if (outcome.ok()) return "+" + *outcome;
  return "-" + std::to_string(static_cast<int>(outcome.error().code)) + " " +
         outcome.error().message;
}

bool is_result(const std::string& text) {
  HP_CHECK(!text.empty() && (text[0] == '+' || text[0] == '-'));
  return text[0] == '+';
}

Result<std::string> decode_outcome(const std::string& text) {
  if (is_result(text)) return text.substr(1);
  const size_t space = text.find(' ');
  HP_CHECK(space != std::string::npos);
  return Error{static_cast<ErrorCode>(std::stoi(text.substr(1, space - 1))),
               text.substr(space + 1)};
}

}  // namespace

Outcome prepare_checkpoint_directory(const std::string& checkpoint_dir) {
  Outcome made = make_directories(checkpoint_dir);
  if (made.ok() && access(checkpoint_dir.c_str(), W_OK | X_OK) != 0) {
    made = errno_error("cannot write " + checkpoint_dir);
  }
  if (made.ok()) return made;
  return Error{ErrorCode::kFailedPrecondition,
               "no checkpoints possible: " + made.error().message +
                   "; make the directory writable or choose another checkpoint.dir"};
}

Saver::Saver(const Workload& workload, TrainingState& state, Communicator& comm)
    : workload_(workload), state_(state), comm_(comm), copy_(state.device()) {}

Saver::~Saver() {
  if (thread_.joinable()) thread_.join();
}

SaveNews Saver::news() const {
  if (!thread_done_.load(std::memory_order_acquire)) return {};
  return {.finished = 1, .failed = outcome_->ok() ? 0.0 : 1.0};
}

Outcome Saver::at_boundary(const SaveNews& sum, bool due) {
  pending_ = pending_ || due;
  HP_TRY(take_turn(sum));
  if (pending_ && turn_ == Turn::kIdle) begin();
  return Ok{};
}

Outcome Saver::finish() {
  HP_TRY(wait_for_turn());
  if (begun_step_ == state_.step()) return Ok{};
  begin();
  return wait_for_turn();
}

Outcome Saver::settle() {
  pending_ = false;
  return wait_for_turn();
}

void Saver::forget_after(uint64_t step) {
  if (begun_step_ > step) begun_step_ = 0;
  if (committed_step_ > step) committed_step_ = 0;
}

// Until nothing is under way on any rank.
Outcome Saver::wait_for_turn() {
  while (turn_ != Turn::kIdle) {
    if (thread_.joinable()) thread_.join();
    const SaveNews mine = news();
    std::array<double, 2> sum = {mine.finished, mine.failed};
    HP_TRY(comm_.all_reduce(sum));
    HP_TRY(take_turn({sum[0], sum[1]}));
  }
  return Ok{};
}

void Saver::run(std::function<Result<std::string>()> work) {
  if (thread_.joinable()) thread_.join();
  thread_done_ = false;
  outcome_.reset();
  thread_ = std::thread([this, work = std::move(work)] {
    try {
      outcome_ = work();
    } catch (const std::exception& e) {  // out of memory, mostly
      outcome_ = Error{ErrorCode::kResourceExhausted,
                       std::string("cannot save a checkpoint: ") + e.what()};
    }
    thread_done_.store(true, std::memory_order_release);
  });
}

// Copies what this rank writes of the sealed state, since an optimizer step overwrites its slot
// soon, and lets the thread write the copy. On a GPU the copy is made while training goes on.
void Saver::begin() {
  pending_ = false;
  turn_ = Turn::kWriting;
  begun_step_ = state_.step();
  manifest_ = state_.manifest();
  std::vector<ShardPart> parts;
  size_t bytes = 0;
  for (const StateKind kind : kStateKinds) {
    for (size_t b = 0; b < manifest_.blocks.size(); ++b) {
      const ElementRange range = state_.written(b);
      parts.push_back(
          {.block = static_cast<int32_t>(b), .kind = kind, .range = range, .values = {}});
      bytes += static_cast<size_t>(range.size()) * state_.element_bytes(kind);
    }
  }
  std::byte* const copy = copy_.reserve(bytes);
  std::byte* to = copy;
  for (const ShardPart& part : parts) {
    state_.begin_read_sealed(part.kind, static_cast<size_t>(part.block), part.range, to);
    to += static_cast<size_t>(part.range.size()) * state_.element_bytes(part.kind);
  }
  run([this, copy, parts = std::move(parts)]() mutable -> Result<std::string> {
    state_.device().await_downloads();
    give_values(copy, parts);
    const ShardJob job{.checkpoint_dir = workload_.checkpoint_dir,
                       .checkpoint = manifest_.ref(),
                       .rank = workload_.rank,
                       .world_size = workload_.world_size,
                       .blocks = &manifest_.blocks,
                       .parts = std::move(parts)};
    HP_TRY_ASSIGN(const Receipt receipt, write_shard(job));
    return encode_receipt(receipt);
  });
}

// Points the parts at their values in the copy, widened where they are bf16.
void Saver::give_values(const std::byte* copy, std::vector<ShardPart>& parts) {
  size_t narrow = 0;
  for (const ShardPart& part : parts) {
    if (state_.element_bytes(part.kind) == 2) narrow += static_cast<size_t>(part.range.size());
  }
  widened_.resize(narrow);
  float* wide = widened_.data();
  for (ShardPart& part : parts) {
    const auto count = static_cast<size_t>(part.range.size());
    if (state_.element_bytes(part.kind) == sizeof(float)) {
      part.values = {reinterpret_cast<const float*>(copy), count};
    } else {
      const auto* from = reinterpret_cast<const uint16_t*>(copy);
      std::transform(from, from + count, wide, float_of_bf16);
      part.values = {wide, count};
      wide += count;
    }
    copy += count * state_.element_bytes(part.kind);
  }
}

Outcome Saver::take_turn(const SaveNews& sum) {
  if (turn_ == Turn::kWriting && sum.finished == comm_.world_size()) return exchange_receipts();
  if (turn_ == Turn::kCommitting && sum.finished == 1) return conclude_commit();
  return Ok{};
}

Outcome Saver::exchange_receipts() {
  if (thread_.joinable()) thread_.join();
  HP_TRY_ASSIGN(std::vector<std::string> texts, comm_.all_gather_text(encode_outcome(*outcome_)));
  thread_done_ = false;
  turn_ = Turn::kCommitting;
  for (const std::string& text : texts) {
    if (is_result(text)) continue;
    if (is_rank0()) {
      static_cast<void>(abandon_checkpoint(workload_.checkpoint_dir, manifest_.ref()));
    }
    return decode_outcome(text).error();
  }
  if (!is_rank0()) return Ok{};
  // What the receipts say takes long to read when there are many; training goes on meanwhile.
  run([this, texts = std::move(texts)]() -> Result<std::string> {
    std::vector<Receipt> receipts;
    for (const std::string& text : texts) {
      HP_TRY_ASSIGN(const std::string bytes, decode_outcome(text));
      HP_TRY_ASSIGN(Receipt receipt, decode_receipt(bytes));
      receipts.push_back(std::move(receipt));
    }
    HP_TRY(commit_checkpoint(workload_.checkpoint_dir, manifest_, receipts));
    const auto kept = keep_newest(workload_.checkpoint_dir, workload_.checkpoint.keep,
                                  workload_.generation, workload_.checkpoint.keep_every);
    if (!kept.ok()) log_warning("old checkpoints stay: " + kept.error().message);
    return std::string();
  });
  return Ok{};
}

Outcome Saver::conclude_commit() {
  if (thread_.joinable()) thread_.join();
  // Rank 0's result, heard by all.
  HP_TRY_ASSIGN(const std::vector<std::string> texts,
                comm_.all_gather_text(is_rank0() ? encode_outcome(*outcome_) : ""));
  thread_done_ = false;
  turn_ = Turn::kIdle;
  HP_TRY(decode_outcome(texts[0]));
  committed_step_ = begun_step_;
  if (is_rank0()) log_info("checkpoint " + manifest_.ref().name() + " is durable");
  return Ok{};
}

}  // namespace hpctl
