// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/progress_view.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "common/base/plausible.h"
#include "common/base/printable.h"

namespace hpctl {
namespace {

float float_of(const std::atomic<uint32_t>& bits) {
  return std::bit_cast<float>(bits.load(std::memory_order_relaxed));
}

template <typename Enum>
bool is_one_of(Enum value, Enum first, Enum last) {
  return value >= first && value <= last;
}

bool is_plausible(const BadStep& bad_step) {
  return std::max({bad_step.step, bad_step.resumed_step, bad_step.samples}) <= kMaxStep &&
         is_one_of(bad_step.finding, BadStepFinding::kNotFinite, BadStepFinding::kGradientSpike) &&
         is_one_of(bad_step.verdict, BadStepVerdict::kNotRepeated, BadStepVerdict::kOtherResult) &&
         is_one_of(bad_step.outcome, BadStepOutcome::kSkipped, BadStepOutcome::kGaveUp);
}

bool is_plausible(const agent::GroupSample& group) {
  return group.first >= 0 && group.last >= 0 && std::max(group.begun, group.completed) <= kMaxStep;
}

bool is_plausible(const agent::ProgressSample& sample) {
  for (const agent::GroupSample& group : sample.groups) {
    if (!is_plausible(group)) return false;
  }
  return sample.phase <= static_cast<uint32_t>(WorkerPhase::kFinished) &&
         std::max({sample.step, sample.checkpoint_step, sample.collective, sample.tokens,
                   sample.figures.snapshot_step}) <= kMaxStep &&
         is_believable(sample.step_took) &&
         is_believable(duration_of(sample.figures.data_waits_ns)) &&
         is_believable(duration_of(sample.figures.save_waits_ns)) &&
         is_believable(sample.started) && is_believable(sample.first_step);
}

// Each counter is read alone: a collective that ends in between makes the difference smaller.
uint64_t open_of(uint64_t begun, uint64_t completed) {
  return begun > completed ? begun - completed : 0;
}

uint64_t open_of(const CollectiveCounts& groups) {
  uint64_t open = 0;
  for (const CollectiveCount& group : groups) {
    const uint64_t begun = group.begun.load(std::memory_order_relaxed);
    open += open_of(begun, group.completed.load(std::memory_order_relaxed));
  }
  return open;
}

// A rank in such a group does not begin the same collectives as all others of the world.
bool has_own_order(GroupKind kind) {
  return kind == GroupKind::kPipeline || kind == GroupKind::kContext ||
         kind == GroupKind::kTensor || kind == GroupKind::kEdge;
}

// Empty if all ranks begin the same collectives. A kind of a later release is left out.
std::vector<agent::GroupSample> read_groups(const GroupSlots& groups) {
  std::vector<agent::GroupSample> read;
  bool differs = false;
  const uint32_t waits_in = groups.waits_in.load(std::memory_order_relaxed);
  for (size_t slot = 0; slot < kGroupSlots; ++slot) {
    const GroupSlot& from = groups.slots[slot];
    const uint32_t kind = from.kind.load(std::memory_order_acquire);
    if (kind == 0 || kind > static_cast<uint32_t>(GroupKind::kEdge)) continue;
    agent::GroupSample& group = read.emplace_back();
    group.kind = kind;
    group.first = from.first.load(std::memory_order_relaxed);
    group.last = from.last.load(std::memory_order_relaxed);
    group.completed = from.count.completed.load(std::memory_order_relaxed);
    group.begun = from.count.begun.load(std::memory_order_relaxed);
    group.waits = waits_in == slot + 1;
    differs = differs || has_own_order(static_cast<GroupKind>(kind));
  }
  if (!differs) read.clear();
  return read;
}

// Where the page counts groups, the older counters lack some of them.
uint32_t open_collectives(const ProgressPage& page, const std::vector<agent::GroupSample>& groups) {
  uint64_t open = groups.empty() ? open_of(page.collectives) : 0;
  for (const agent::GroupSample& group : groups) open += open_of(group.begun, group.completed);
  return static_cast<uint32_t>(std::min<uint64_t>(open, UINT32_MAX));
}

// nullopt = it does not hold number `number`, no longer, or not what a trainer writes.
std::optional<BadStep> read_slot(const BadStepSlot& slot, uint64_t number) {
  if (slot.number.load(std::memory_order_acquire) != number) return std::nullopt;
  BadStep bad_step;
  bad_step.number = number;
  bad_step.step = slot.step.load(std::memory_order_relaxed);
  bad_step.resumed_step = slot.resumed_step.load(std::memory_order_relaxed);
  bad_step.samples = slot.samples.load(std::memory_order_relaxed);
  bad_step.finding = static_cast<BadStepFinding>(slot.finding.load(std::memory_order_relaxed));
  bad_step.verdict = static_cast<BadStepVerdict>(slot.verdict.load(std::memory_order_relaxed));
  bad_step.outcome = static_cast<BadStepOutcome>(slot.outcome.load(std::memory_order_relaxed));
  bad_step.blamed_rank = slot.blamed_rank.load(std::memory_order_relaxed);
  const size_t length =
      std::min<size_t>(slot.reason_length.load(std::memory_order_relaxed), kBadStepReasonBytes);
  bad_step.reason = printable_line(std::string(slot.reason, length), kBadStepReasonBytes);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (slot.number.load(std::memory_order_relaxed) != number) return std::nullopt;
  if (!is_plausible(bad_step)) return std::nullopt;
  return bad_step;
}

}  // namespace

ProgressView::ProgressView(int memfd) {
  void* address = ::mmap(nullptr, kProgressPageBytes, PROT_READ, MAP_SHARED, memfd, 0);
  if (address != MAP_FAILED) page_ = static_cast<const ProgressPage*>(address);
}

ProgressView::~ProgressView() {
  if (page_ != nullptr) ::munmap(const_cast<ProgressPage*>(page_), kProgressPageBytes);
}

bool ProgressView::written() const {
  return page_ != nullptr && page_->magic.load(std::memory_order_acquire) == kProgressMagic &&
         page_->version.load(std::memory_order_relaxed) == kProgressVersion;
}

agent::ProgressSample ProgressView::sample() const {
  agent::ProgressSample sample;
  sample.mapped = written();
  if (!sample.mapped) return sample;
  sample.step = page_->step.load(std::memory_order_acquire);  // first: it is stored last
  sample.phase = page_->phase.load(std::memory_order_relaxed);
  sample.loss = std::bit_cast<float>(page_->loss_bits.load(std::memory_order_relaxed));
  sample.grad_norm = std::bit_cast<float>(page_->grad_norm_bits.load(std::memory_order_relaxed));
  sample.collective = page_->collective.load(std::memory_order_relaxed);
  sample.groups = read_groups(page_->groups);
  sample.open_collectives = open_collectives(*page_, sample.groups);
  sample.computing = page_->computing.load(std::memory_order_relaxed) == 1;
  sample.tokens = page_->tokens.load(std::memory_order_relaxed);
  sample.step_took = duration_of(page_->step_ns.load(std::memory_order_relaxed));
  sample.checkpoint_step = page_->checkpoint_step.load(std::memory_order_relaxed);
  sample.started = time_of(page_->start_unix_ns.load(std::memory_order_relaxed));
  sample.first_step = time_of(page_->first_step_unix_ns.load(std::memory_order_relaxed));
  StepFigures& figures = sample.figures;
  figures.learning_rate = float_of(page_->learning_rate_bits);
  figures.flops = float_of(page_->flops_bits);
  figures.flops_causal = float_of(page_->flops_causal_bits);
  figures.mfu = float_of(page_->mfu_bits);
  figures.mfu_causal = float_of(page_->mfu_causal_bits);
  figures.peak_memory_bytes = page_->peak_memory_bytes.load(std::memory_order_relaxed);
  figures.compute_ns = page_->compute_ns.load(std::memory_order_relaxed);
  figures.data_wait_ns = page_->data_wait_ns.load(std::memory_order_relaxed);
  figures.communication_ns = page_->communication_ns.load(std::memory_order_relaxed);
  figures.communication_wait_ns = page_->communication_wait_ns.load(std::memory_order_relaxed);
  figures.saves_without_room = page_->saves_without_room.load(std::memory_order_relaxed);
  figures.data_waits_ns = page_->data_waits_ns.load(std::memory_order_relaxed);
  figures.save_waits_ns = page_->save_waits_ns.load(std::memory_order_relaxed);
  figures.snapshot_step = page_->snapshot_step.load(std::memory_order_relaxed);
  figures.saves_out_of_space = page_->saves_out_of_space.load(std::memory_order_relaxed);
  figures.storage_failures = page_->storage_failures.load(std::memory_order_relaxed);
  sample.damaged = page_->bad_steps.load(std::memory_order_relaxed) > kMaxStep;
  if (is_plausible(sample)) return sample;
  agent::ProgressSample damaged;
  damaged.damaged = true;
  return damaged;
}

std::vector<BadStep> ProgressView::bad_steps() const {
  std::vector<BadStep> steps;
  if (!written()) return steps;
  const uint64_t newest = page_->bad_steps.load(std::memory_order_acquire);
  if (newest > kMaxStep) return steps;
  const uint64_t held = std::min<uint64_t>(newest, kBadStepSlots);
  for (uint64_t number = newest - held + 1; number <= newest; ++number) {
    if (auto bad_step = read_slot(page_->bad_step[(number - 1) % kBadStepSlots], number)) {
      steps.push_back(std::move(*bad_step));
    }
  }
  return steps;
}

FileFault ProgressView::file_fault() const {
  if (!written()) return {};
  const uint32_t length =
      std::min(page_->fault_file_length.load(std::memory_order_acquire), kFaultFileBytes);
  return {printable_line(std::string(page_->fault_file, length), kFaultFileBytes),
          page_->fault_offset.load(std::memory_order_relaxed),
          page_->fault_bytes.load(std::memory_order_relaxed),
          page_->fault_error.load(std::memory_order_relaxed)};
}

std::string ProgressView::message() const {
  if (!written()) return "";
  const uint32_t length =
      std::min(page_->message_length.load(std::memory_order_acquire), kProgressMessageBytes);
  return printable_line(std::string(page_->message, length), kProgressMessageBytes);
}

}  // namespace hpctl
