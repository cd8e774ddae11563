// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/peer_snapshots.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/job/snapshot_peers.h"
#include "trainer/state/state_message.h"

namespace hpctl {

namespace {

// The share of the time that sending may take (recovery.snapshot.every_steps: auto). It happens
// beside steps and costs them at most a sixth of itself (docs/benchmarks/trainer-cpu.md): below one
// percent.
constexpr double kMostOfTime = 0.05;

int place_in(const std::vector<int32_t>& group, int32_t rank) {
  return static_cast<int>(std::find(group.begin(), group.end(), rank) - group.begin());
}

std::vector<int32_t> group_of(const Workload& workload) {
  return snapshot_group(workload.rank, workload.world_size, workload.workers_per_node);
}

}  // namespace

CommunicatorOptions PeerSnapshots::ring_options(const Workload& workload) {
  const std::vector<int32_t> group = group_of(workload);
  CommunicatorOptions options;
  options.rank = place_in(group, workload.rank);
  options.world_size = static_cast<int>(group.size());
  options.rendezvous_dir = workload.rendezvous_dir + "/snapshots-" + std::to_string(group.front());
  options.bind_address = workload.bind_address;
  return options;
}

PeerSnapshots::PeerSnapshots(const Workload& workload, TrainingState& state,
                             std::unique_ptr<Communicator> ring)
    : workload_(workload), state_(state), group_(group_of(workload)), ring_(std::move(ring)) {}

PeerSnapshots::~PeerSnapshots() {
  abort();
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PeerSnapshots::abort() { ring_->abort(); }

Outcome PeerSnapshots::connect() {
  if (connected_) return Ok{};
  connected_ = true;
  return ring_->connect();
}

int PeerSnapshots::neighbour(int distance) const {
  const auto members = static_cast<int>(group_.size());
  return (ring_->rank() + distance + members) % members;
}

bool PeerSnapshots::is_refilled_member(int member) const {
  return is_refilled(workload_, group_[static_cast<size_t>(member)]);
}

Outcome PeerSnapshots::restore() {
  const bool any = std::any_of(group_.begin(), group_.end(),
                               [&](int32_t rank) { return is_refilled(workload_, rank); });
  if (!any) return Ok{};
  HP_TRY(connect());
  const int before = neighbour(-1);
  const int from = is_refilled_member(before) ? state_.find_copy() : kNoSlot;
  HP_CHECK(!is_refilled_member(before) || from != kNoSlot);  // the controller has looked
  const int into = is_refilled_member(ring_->rank()) ? 0 : kNoSlot;
  HP_TRY_ASSIGN(const bool intact,
                exchange_states(*ring_, state_.arena(), before, from, neighbour(1), into));
  if (!intact) {
    return Error{ErrorCode::kDataLoss,
                 "the copy of rank " + std::to_string(workload_.rank) + "'s state that rank " +
                     std::to_string(group_[static_cast<size_t>(neighbour(1))]) +
                     " keeps arrived damaged; start from a checkpoint"};
  }
  return into == kNoSlot ? Outcome(Ok{}) : state_.take_restored();
}

void PeerSnapshots::start() {
  const int found = state_.find_copy();
  copy_ = found != kNoSlot ? found : state_.geometry().slots;
  begun_step_ = state_.sealed_step();
  thread_ = std::thread([this] { run(); });
}

void PeerSnapshots::run() {
  Outcome connection = connect();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || (requested_ && !outcome_); });
    if (ends_) return;
    const Transfer transfer = *requested_;
    lock.unlock();
    const Clock::time_point began = Clock::now();
    Result<bool> intact = connection.ok() ? this->transfer(transfer) : connection.error();
    lock.lock();
    took_ = Clock::now() - began;
    outcome_ = std::move(intact);
    changed_.notify_all();
  }
}

Result<bool> PeerSnapshots::transfer(const Transfer& transfer) {
  return exchange_states(*ring_, state_.arena(), neighbour(1), transfer.from, neighbour(-1),
                         transfer.to);
}

bool PeerSnapshots::must_wait() const {
  if (!under_way_) return false;
  const auto every = static_cast<uint64_t>(workload_.snapshot.every_steps);
  const bool is_late = every > 0 && everywhere_ > 0 && state_.sealed_step() >= begun_step_ + every;
  return is_late || !state_.has_room();
}

Outcome PeerSnapshots::make_room() {
  if (!must_wait()) return Ok{};
  const Clock::time_point began = Clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return outcome_.has_value(); });
  waited_ += std::chrono::duration<double>(Clock::now() - began).count();
  return outcome_->ok() ? Outcome(Ok{}) : outcome_->error();
}

bool PeerSnapshots::is_due() const {
  if (workload_.rank != 0) return false;
  if (everywhere_ == 0 && !under_way_) return true;
  const uint64_t next = state_.is_copied_to_host() ? state_.sealed_step() : state_.step() + 1;
  if (next == begun_step_) return false;  // nothing newer is in host memory
  const auto every = static_cast<uint64_t>(workload_.snapshot.every_steps);
  if (every > 0) return next >= begun_step_ + every;
  // Beside a save that holds another step, it would take the last slot.
  return !state_.holds() && Clock::now() - begun_ >= took_ / kMostOfTime;
}

Result<SnapshotNews> PeerSnapshots::news() {
  const std::lock_guard lock(mutex_);
  SnapshotNews news;
  news.due = is_due() ? 1 : 0;
  if (!outcome_) return news;
  if (!outcome_->ok()) return outcome_->error();
  (**outcome_ ? news.received : news.damaged) = 1;
  return news;
}

void PeerSnapshots::conclude(const SnapshotNews& sums) {
  const auto members = static_cast<double>(workload_.world_size);
  if (!under_way_ || sums.received + sums.damaged < members) return;
  const bool complete = sums.damaged == 0;
  std::chrono::duration<double> took{};
  {
    const std::lock_guard lock(mutex_);
    if (complete) copy_ = requested_->to;
    requested_.reset();
    outcome_.reset();
    took = took_;
  }
  under_way_ = false;
  state_.end_snapshot(complete);
  if (!complete) {
    if (workload_.rank != 0) return;
    log_warning("the copies of step " + std::to_string(step_under_way_) + " at " +
                std::to_string(static_cast<int>(sums.damaged)) +
                " ranks arrived damaged and are given up; the next ones are complete copies");
    return;
  }
  if (everywhere_ == 0 && workload_.rank == 0) {
    log_info("step " + std::to_string(step_under_way_) +
             " is in the memory of two nodes; copies took " +
             std::to_string(static_cast<int64_t>(took.count() * 1e3)) + " ms");
  }
  everywhere_ = step_under_way_;
}

void PeerSnapshots::at_boundary(const SnapshotNews& sums) {
  if (under_way_ || sums.due == 0) return;
  under_way_ = true;
  step_under_way_ = begun_step_ = state_.sealed_step();
  begun_ = Clock::now();
  const int first = state_.geometry().slots;
  const int to = copy_ == first ? first + 1 : first;
  {
    const std::lock_guard lock(mutex_);
    requested_ = Transfer{state_.begin_snapshot(), to};
  }
  changed_.notify_all();
}

Outcome PeerSnapshots::forget() {
  if (under_way_) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return outcome_.has_value(); });
    if (!outcome_->ok()) return outcome_->error();
    requested_.reset();
    outcome_.reset();
  }
  under_way_ = false;
  state_.end_snapshot(false);
  everywhere_ = 0;
  return Ok{};
}

}  // namespace hpctl
