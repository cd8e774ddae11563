// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/saver.h"

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <span>
#include <thread>
#include <utility>

#include "common/base/file.h"
#include "common/base/log.h"
#include "trainer/checkpoint/commit.h"
#include "trainer/kernels/bf16_rounding.h"
#include "trainer/process/fault_injector.h"
#include "trainer/state/checkpoint_directory.h"

namespace hpctl {

namespace {

using std::chrono::seconds;

// Between two attempts to save while storage fails: doubled from the one to the other.
constexpr seconds kFirstPause{2};
constexpr seconds kLongestPause{300};

// While the ranks wait for a save, or for storage, and a stop may come.
constexpr std::chrono::milliseconds kLook{100};

// Of limits.last_checkpoint: the rest is for the step that ends first, the commit, and the end of
// the processes.
constexpr double kShareOfWriting = 7.0 / 8;

// What rank 0's thread says after a failed commit whose manifest is durable all the same.
constexpr const char* kIsDurable = "durable";

// An exception only shows that this process, or its device, cannot go on. LibTorch writes its
// origin into further lines.
Error fault(const std::string& what) {
  return {ErrorCode::kInternal, "cannot save a checkpoint: " + what.substr(0, what.find('\n'))};
}

// One rank's report to the others: its work's result, or why it failed.
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

Saver::Saver(const Workload& workload, TrainingState& state, Communicator& comm)
    : workload_(workload), state_(state), comm_(comm), copy_(state.device()) {}

Saver::~Saver() {
  if (thread_.joinable()) thread_.join();
  state_.release_held();
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

Result<bool> Saver::finish(SinceStop since_stop, const std::function<void()>& on_failure) {
  is_finishing_ = true;
  HP_TRY(wait_or_give_up(since_stop));
  while (begun_step_ != state_.step()) {
    begin();
    HP_TRY(wait_for_turn());
    if (begun_step_ == state_.step()) continue;
    on_failure();
    HP_TRY_ASSIGN(const bool again, wait_for_storage(since_stop));
    if (!again) return false;
  }
  return true;
}

// Until the next attempt is due by rank 0's clock; false when a rank was told to end. Storage that
// is back sends no notification.
Result<bool> Saver::wait_for_storage(SinceStop since_stop) {
  while (true) {
    if (aborted_) return aborted();
    const bool due = is_rank0() && retry_due();
    std::array<double, 2> sum = {due ? 1.0 : 0.0, since_stop() ? 1.0 : 0.0};
    HP_TRY(comm_.all_reduce(sum));
    if (sum[1] > 0) return false;
    if (sum[0] > 0) return true;
    if (is_rank0()) std::this_thread::sleep_for(kLook);
  }
}

void Saver::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    given_up_ = true;
  }
  changed_.notify_all();
}

void Saver::when_idle(std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    if (thread_.joinable() && !thread_done_) {
      idle_ = std::move(done);
      return;
    }
  }
  done();
}

Error Saver::aborted() const {
  return {kPeerLost,
          "generation " + std::to_string(workload_.generation) + " got the order to end in a save"};
}

Outcome Saver::await_thread() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return thread_done_ || !thread_.joinable() || aborted_; });
  if (aborted_) return aborted();
  return Ok{};
}

// Returns Ok, too, if the time is over.
Outcome Saver::await_thread_for(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most,
                    [this] { return thread_done_ || !thread_.joinable() || aborted_; });
  if (aborted_) return aborted();
  return Ok{};
}

Outcome Saver::settle() {
  pending_ = false;
  return wait_for_turn();
}

void Saver::forget_after(uint64_t step) {
  if (begun_step_ > step) begun_step_ = 0;
  if (committed_step_ > step) committed_step_ = 0;
  if (doubtful_step_ > step) doubtful_step_ = 0;
}

// Until nothing is under way on any rank.
Outcome Saver::wait_for_turn() {
  while (turn_ != Turn::kIdle) {
    HP_TRY(await_thread());
    const SaveNews mine = news();
    std::array<double, 2> sum = {mine.finished, mine.failed};
    HP_TRY(comm_.all_reduce(sum));
    HP_TRY(take_turn({sum[0], sum[1]}));
  }
  return Ok{};
}

// Until nothing is under way on any rank. A save of an older step is given up once the ranks have
// decided so, which a stop that comes meanwhile may cause, too.
Outcome Saver::wait_or_give_up(SinceStop since_stop) {
  std::optional<Clock::time_point> told_at;  // that any rank was told to end
  while (turn_ == Turn::kWriting && begun_step_ != state_.step() && !gives_up_) {
    HP_TRY(await_thread_for(kLook));
    const std::chrono::duration<double> told_for =
        told_at ? Clock::now() - *told_at : Clock::duration(0);
    const std::optional<double> own = since_stop();
    const SaveVotes votes = vote(std::max(own.value_or(0), told_for.count()));
    const SaveNews mine = news();
    std::array<double, 5> sum = {mine.finished, mine.failed, own ? 1.0 : 0.0, votes.too_slow,
                                 votes.newest_fits};
    HP_TRY(comm_.all_reduce(sum));
    HP_TRY(take_turn({sum[0], sum[1]}));
    if (sum[2] == 0 || turn_ != Turn::kWriting) continue;
    if (!told_at) told_at = Clock::now();
    if (is_given_up({sum[3], sum[4]}, comm_.world_size())) give_up_save();
  }
  return wait_for_turn();
}

SaveVotes Saver::vote(double since_stop_s) const {
  const double part_s = part_s_;
  const std::chrono::duration<double> so_far = Clock::now() - begun_at_;
  PartOfSave part;
  part.is_written = part_s > 0;
  part.seconds = part.is_written ? part_s : so_far.count();
  part.written = part_bytes_ == 0
                     ? 1
                     : static_cast<double>(progress_.bytes) / static_cast<double>(part_bytes_);
  part.can_be_given_up = !progress_.is_syncing;
  part.usual_seconds = usual_part_s_;
  const double limit_s = static_cast<double>(workload_.last_checkpoint_ms) * 1e-3;
  return vote_on_save(part, limit_s * kShareOfWriting - since_stop_s);
}

void Saver::give_up_save() {
  if (is_rank0()) {
    log_warning("the time does not suffice for two checkpoints: that of step " +
                std::to_string(begun_step_) + " is given up for that of step " +
                std::to_string(state_.step()));
  }
  gives_up_ = true;
  given_up_ = true;
}

void Saver::run(std::function<Result<std::string>()> work) {
  if (thread_.joinable()) thread_.join();
  thread_done_ = false;
  outcome_.reset();
  thread_ = std::thread([this, work = std::move(work)] {
    try {
      outcome_ = work();
    } catch (const std::exception& e) {
      outcome_ = fault(e.what());
    }
    std::function<void()> idle;
    {
      const std::lock_guard lock(mutex_);
      thread_done_.store(true, std::memory_order_release);
      idle = std::exchange(idle_, nullptr);
    }
    changed_.notify_all();
    if (idle) idle();
  });
}

void Saver::begin() {
  pending_ = false;
  turn_ = Turn::kWriting;
  begun_step_ = state_.step();
  begun_at_ = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    given_up_ = aborted_.load();
  }
  progress_.bytes = 0;
  progress_.is_syncing = false;
  part_s_ = 0;
  manifest_ = state_.manifest();
  written_ = state_.written_parts();
  std::vector<ShardPart> parts = parts_of_save();
  part_bytes_ = 0;
  for (const ShardPart& part : parts) {
    part_bytes_ += static_cast<uint64_t>(part.range.size()) * sizeof(float);
  }
  run([this, sources = read_sealed(parts),
       parts = std::move(parts)]() mutable -> Result<std::string> {
    state_.device().await_downloads();
    give_values(sources, parts);
    HP_TRY(inject_ordered_disk(workload_.generation));
    HP_TRY(check_claimed(workload_));
    const ShardJob job{.checkpoint_dir = workload_.checkpoint_dir,
                       .checkpoint = manifest_.ref(),
                       .rank = workload_.rank,
                       .world_size = workload_.world_size,
                       .blocks = &manifest_.blocks,
                       .parts = std::move(parts),
                       .given_up = &given_up_,
                       .progress = &progress_};
    HP_TRY_ASSIGN(const Receipt receipt, write_shard(job));
    part_s_ = std::chrono::duration<double>(Clock::now() - begun_at_).count();
    return encode_receipt(receipt);
  });
}

std::vector<ShardPart> Saver::parts_of_save() const {
  std::vector<ShardPart> parts;
  for (const StateKind kind : kStateKinds) {
    for (const WrittenPart& written : written_) {
      const bool is_slice = written.slice.has_value();
      parts.push_back({.block = written.block,
                       .kind = kind,
                       .range = is_slice ? ElementRange{0, written.range.size()} : written.range,
                       .values = {},
                       .slice = is_slice ? &*written.slice : nullptr});
    }
  }
  return parts;
}

// The place of each part, now or after the downloads: in the state's own slot, which optimizer
// steps do not write until it is released, or in a copy, since a step overwrites the slot soon. On
// a GPU the copy is made while training goes on.
std::vector<const std::byte*> Saver::read_sealed(const std::vector<ShardPart>& parts) {
  std::vector<const std::byte*> sources;
  if (state_.hold_newest()) {
    for (size_t i = 0; i < parts.size(); ++i) {
      sources.push_back(
          state_.held(parts[i].kind, static_cast<size_t>(parts[i].block), range_in_state(i)));
    }
    return sources;
  }
  const auto bytes_of = [this](const ShardPart& part) {
    return static_cast<size_t>(part.range.size()) * state_.element_bytes(part.kind);
  };
  size_t bytes = 0;
  for (const ShardPart& part : parts) bytes += bytes_of(part);
  std::byte* to = copy_.reserve(bytes);
  for (size_t i = 0; i < parts.size(); ++i) {
    state_.begin_read_sealed(parts[i].kind, static_cast<size_t>(parts[i].block), range_in_state(i),
                             to);
    sources.push_back(to);
    to += bytes_of(parts[i]);
  }
  return sources;
}

// Points the parts at their values, widened where they are bf16.
void Saver::give_values(const std::vector<const std::byte*>& sources,
                        std::vector<ShardPart>& parts) {
  size_t narrow = 0;
  for (const ShardPart& part : parts) {
    if (state_.element_bytes(part.kind) == 2) narrow += static_cast<size_t>(part.range.size());
  }
  widened_.resize(narrow);
  float* wide = widened_.data();
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto count = static_cast<size_t>(parts[i].range.size());
    if (state_.element_bytes(parts[i].kind) == sizeof(float)) {
      parts[i].values = {reinterpret_cast<const float*>(sources[i]), count};
    } else {
      const auto* from = reinterpret_cast<const uint16_t*>(sources[i]);
      std::transform(from, from + count, wide, [](uint16_t x) { return float_of_bf16(x); });
      parts[i].values = {wide, count};
      wide += count;
    }
  }
}

Outcome Saver::take_turn(const SaveNews& sum) {
  if (aborted_) return aborted();  // one rank alone has no collective that would fail
  if (turn_ == Turn::kWriting && sum.finished == comm_.world_size()) return exchange_receipts();
  if (turn_ == Turn::kCommitting && sum.finished == 1) return conclude_commit();
  if (turn_ == Turn::kClearing && sum.finished == 1) return conclude_clearing();
  return Ok{};
}

Outcome Saver::exchange_receipts() {
  if (thread_.joinable()) thread_.join();
  state_.release_held();
  HP_TRY_ASSIGN(std::vector<std::string> texts, comm_.all_gather_text(encode_outcome(*outcome_)));
  thread_done_ = false;
  std::map<int32_t, Error> failures;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (is_result(texts[rank])) continue;
    failures.emplace(static_cast<int32_t>(rank), decode_outcome(texts[rank]).error());
  }
  // If every part was written all the same, the checkpoint counts.
  const bool is_partial = gives_up_ && std::erase_if(failures, [](const auto& failure) {
                                         return failure.second.code == ErrorCode::kUnavailable;
                                       }) > 0;
  gives_up_ = false;
  if (!failures.empty()) return end_failed(failures);
  if (is_partial) {
    begin_clearing_what_was_given_up();
    return Ok{};
  }
  usual_part_s_ = part_s_;
  turn_ = Turn::kCommitting;
  if (!is_rank0()) return Ok{};
  // Many receipts take long to read; training goes on meanwhile.
  run([this, texts = std::move(texts)]() -> Result<std::string> {
    std::vector<Receipt> receipts;
    for (const std::string& text : texts) {
      HP_TRY_ASSIGN(const std::string bytes, decode_outcome(text));
      HP_TRY_ASSIGN(Receipt receipt, decode_receipt(bytes));
      receipts.push_back(std::move(receipt));
    }
    HP_TRY(check_claimed(workload_));
    HP_TRY(commit_checkpoint(workload_.checkpoint_dir, manifest_, receipts));
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
  if (const auto committed = decode_outcome(texts[0]); !committed.ok()) {
    doubtful_step_ = manifest_.ref().step;
    return end_failed({{0, committed.error()}});
  }
  turn_ = Turn::kIdle;
  note_committed();
  return Ok{};
}

void Saver::note_committed() {
  begun_step_ = committed_step_ = manifest_.ref().step;
  doubtful_step_ = 0;
  failing_since_.reset();
  failed_in_a_row_ = 0;
  out_of_space_ = 0;
  if (is_rank0()) log_info("checkpoint " + manifest_.ref().name() + " is durable");
}

// Whether the same processes may succeed later.
bool Saver::is_of_storage(const Error& failure) const {
  const bool worked = committed_step_ > 0 || has_worked(workload_);
  switch (failure.code) {
    case ErrorCode::kResourceExhausted:
    case ErrorCode::kStorage:
    case ErrorCode::kDataLoss:  // a shard that rank 0 sees shorter than it was written
      return true;
    case ErrorCode::kNotFound:
    case ErrorCode::kPermissionDenied:
      return worked;
    case ErrorCode::kAlreadyExists:
      return worked || is_doubtful();
    default:
      return false;
  }
}

// Whether an earlier attempt to commit the same checkpoint failed. Its manifest may be there.
bool Saver::is_doubtful() const {
  return doubtful_step_ != 0 && doubtful_step_ == manifest_.ref().step;
}

// `failures` by rank, the same on all ranks. Where storage fails and nothing worse has happened,
// training goes on.
Outcome Saver::end_failed(const std::map<int32_t, Error>& failures) {
  const auto worse = std::find_if(failures.begin(), failures.end(), [this](const auto& failure) {
    return !is_of_storage(failure.second);
  });
  if (worse == failures.end()) {
    const auto not_full = std::find_if(failures.begin(), failures.end(), [](const auto& failure) {
      return failure.second.code != ErrorCode::kResourceExhausted;
    });
    begin_clearing((not_full == failures.end() ? failures.begin() : not_full)->second);
    return Ok{};
  }
  if (is_rank0()) {
    static_cast<void>(abandon_checkpoint(workload_.checkpoint_dir, manifest_.ref()));
  }
  const auto own = failures.find(workload_.rank);
  if (own != failures.end() && own->second.code == ErrorCode::kInternal) return own->second;
  if (worse->second.code != ErrorCode::kInternal) return worse->second;
  return Error{kPeerLost,
               "rank " + std::to_string(worse->first) + " failed: " + worse->second.message};
}

void Saver::begin_clearing(const Error& why) {
  turn_ = Turn::kClearing;
  begun_step_ = committed_step_;
  ++failed_saves_;
  ++failed_in_a_row_;
  out_of_space_ = why.code == ErrorCode::kResourceExhausted ? out_of_space_ + 1 : 0;
  failure_ = why.message;
  if (!failing_since_) {
    failing_since_ = Clock::now();
    pause_ = kFirstPause;
  }
  if (!is_rank0()) return;
  const std::chrono::milliseconds limit{workload_.storage_limit_ms};
  const bool too_long = Clock::now() - *failing_since_ >= limit;
  run([this, why, too_long, doubtful = is_doubtful(),
       is_last = is_finishing_]() -> Result<std::string> {
    if (is_of_another_job(workload_)) {
      // Nothing of it may be touched. Without a step left to train, the controller decides.
      if (is_last) return Error{ErrorCode::kStorage, why.message};
    } else if (doubtful && make_manifest_durable()) {
      return std::string(kIsDurable);
    } else {
      remove_partial_save();
    }
    if (too_long) {
      return Error{ErrorCode::kResourceExhausted, why.message + " (limits.storage is over)"};
    }
    return std::string();
  });
}

void Saver::begin_clearing_what_was_given_up() {
  turn_ = Turn::kClearing;
  begun_step_ = committed_step_;
  failure_.clear();
  if (!is_rank0()) return;
  run([this]() -> Result<std::string> {
    remove_partial_save();
    return std::string();
  });
}

// After a failed commit: whether the checkpoint has its manifest, and is durable now.
bool Saver::make_manifest_durable() const {
  const std::string& directory = workload_.checkpoint_dir;
  const std::string step_dir = directory + "/" + manifest_.ref().name();
  const auto committed = has_manifest(step_dir);
  return committed.ok() && *committed && sync_directory(step_dir).ok() &&
         sync_directory(directory).ok();
}

void Saver::remove_partial_save() const {
  const Outcome removed = abandon_checkpoint(workload_.checkpoint_dir, manifest_.ref());
  if (!removed.ok()) log_warning("a partial save stays: " + removed.error().message);
}

Outcome Saver::conclude_clearing() {
  if (thread_.joinable()) thread_.join();
  HP_TRY_ASSIGN(const std::vector<std::string> texts,
                comm_.all_gather_text(is_rank0() ? encode_outcome(*outcome_) : ""));
  thread_done_ = false;
  turn_ = Turn::kIdle;
  HP_TRY_ASSIGN(const std::string cleared, decode_outcome(texts[0]));
  if (cleared == kIsDurable) {
    note_committed();
    return Ok{};
  }
  pending_ = false;
  if (failure_.empty()) return Ok{};
  if (is_rank0()) {
    log_warning(failure_ + "; training goes on without it, trying again in " +
                std::to_string(pause_.count()) + " s");
  }
  next_attempt_ = Clock::now() + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
  return Ok{};
}

}  // namespace hpctl
