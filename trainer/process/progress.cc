// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/progress.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace hpctl {

namespace {

uint64_t unix_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
}

// In place of what is at `address`, null = anywhere.
Result<ProgressPage*> map_page(void* address, int fd) {
  if (fd >= 0) {
    struct stat status {};
    if (fstat(fd, &status) != 0) return errno_error("cannot use the progress page descriptor");
    if (status.st_size < static_cast<off_t>(kProgressPageBytes)) {
      return Error{ErrorCode::kInvalidArgument,
                   "the progress page has " + std::to_string(status.st_size) + " bytes, expected " +
                       std::to_string(kProgressPageBytes)};
    }
  }
  const int flags =
      (fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | (address != nullptr ? MAP_FIXED : 0);
  void* memory = mmap(address, kProgressPageBytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) return errno_error("cannot map the progress page");
  auto* page = static_cast<ProgressPage*>(memory);
  page->version.store(kProgressVersion, std::memory_order_relaxed);
  page->start_unix_ns.store(unix_ns(), std::memory_order_relaxed);
  page->magic.store(kProgressMagic, std::memory_order_release);
  return page;
}

}  // namespace

Result<Progress> Progress::attach(int fd) {
  HP_TRY_ASSIGN(ProgressPage* const page, map_page(nullptr, fd));
  return Progress(page);
}

Progress::Progress(Progress&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}

Progress::~Progress() {
  if (page_ != nullptr) munmap(page_, kProgressPageBytes);
}

Outcome Progress::turn_page(int fd) {
  const auto page = map_page(page_, fd);
  return page.ok() ? Outcome(Ok{}) : Outcome(page.error());
}

void Progress::enter(WorkerPhase phase) {
  page_->phase.store(static_cast<uint32_t>(phase), std::memory_order_release);
}

void Progress::set_computing(bool computing) {
  page_->computing.store(computing ? 1 : 0, std::memory_order_relaxed);
}

void Progress::step_done(const StepProgress& done) {
  page_->loss_bits.store(std::bit_cast<uint32_t>(done.loss), std::memory_order_relaxed);
  page_->grad_norm_bits.store(std::bit_cast<uint32_t>(done.grad_norm), std::memory_order_relaxed);
  page_->tokens.store(done.tokens, std::memory_order_relaxed);
  page_->step_ns.store(done.nanoseconds, std::memory_order_relaxed);
  const StepFigures& f = done.figures;
  const auto store_float = [](std::atomic<uint32_t>& bits, float value) {
    bits.store(std::bit_cast<uint32_t>(value), std::memory_order_relaxed);
  };
  store_float(page_->learning_rate_bits, f.learning_rate);
  store_float(page_->flops_bits, f.flops);
  store_float(page_->flops_causal_bits, f.flops_causal);
  store_float(page_->mfu_bits, f.mfu);
  store_float(page_->mfu_causal_bits, f.mfu_causal);
  page_->peak_memory_bytes.store(f.peak_memory_bytes, std::memory_order_relaxed);
  page_->compute_ns.store(f.compute_ns, std::memory_order_relaxed);
  page_->data_wait_ns.store(f.data_wait_ns, std::memory_order_relaxed);
  page_->communication_ns.store(f.communication_ns, std::memory_order_relaxed);
  page_->communication_wait_ns.store(f.communication_wait_ns, std::memory_order_relaxed);
  page_->data_waits_ns.store(f.data_waits_ns, std::memory_order_relaxed);
  page_->save_waits_ns.store(f.save_waits_ns, std::memory_order_relaxed);
  page_->snapshot_step.store(f.snapshot_step, std::memory_order_relaxed);
  stands_at(done.step);
}

void Progress::stands_at(uint64_t step) {
  if (page_->first_step_unix_ns.load(std::memory_order_relaxed) == 0) {
    page_->first_step_unix_ns.store(unix_ns(), std::memory_order_relaxed);
  }
  page_->step.store(step, std::memory_order_release);
}

void Progress::waited_for_last_save(uint64_t nanoseconds) {
  page_->save_waits_ns.fetch_add(nanoseconds, std::memory_order_relaxed);
}

void Progress::checkpoint_committed(uint64_t step) {
  page_->checkpoint_step.store(step, std::memory_order_release);
}

void Progress::saves_failed(uint64_t in_a_row, uint64_t out_of_space) {
  page_->saves_without_room.store(in_a_row, std::memory_order_relaxed);
  page_->saves_out_of_space.store(out_of_space, std::memory_order_relaxed);
}

void Progress::waits_for_storage(uint64_t failures) {
  page_->storage_failures.store(failures, std::memory_order_relaxed);
}

void Progress::bad_step(const BadStep& bad_step) {
  const uint64_t number = page_->bad_steps.load(std::memory_order_relaxed) + 1;
  BadStepSlot& slot = page_->bad_step[(number - 1) % kBadStepSlots];
  slot.number.store(0, std::memory_order_release);
  slot.step.store(bad_step.step, std::memory_order_relaxed);
  slot.resumed_step.store(bad_step.resumed_step, std::memory_order_relaxed);
  slot.samples.store(bad_step.samples, std::memory_order_relaxed);
  slot.finding.store(static_cast<uint32_t>(bad_step.finding), std::memory_order_relaxed);
  slot.verdict.store(static_cast<uint32_t>(bad_step.verdict), std::memory_order_relaxed);
  slot.outcome.store(static_cast<uint32_t>(bad_step.outcome), std::memory_order_relaxed);
  slot.blamed_rank.store(bad_step.blamed_rank, std::memory_order_relaxed);
  const size_t length = std::min<size_t>(bad_step.reason.size(), kBadStepReasonBytes);
  std::memcpy(slot.reason, bad_step.reason.data(), length);
  slot.reason_length.store(static_cast<uint32_t>(length), std::memory_order_relaxed);
  slot.number.store(number, std::memory_order_release);
  page_->bad_steps.store(number, std::memory_order_release);
}

void Progress::file_fault(const FileFault& fault) {
  if (fault.file.size() > kFaultFileBytes) return;
  page_->fault_offset.store(fault.offset, std::memory_order_relaxed);
  page_->fault_bytes.store(fault.bytes, std::memory_order_relaxed);
  page_->fault_error.store(fault.error, std::memory_order_relaxed);
  std::memcpy(page_->fault_file, fault.file.data(), fault.file.size());
  page_->fault_file_length.store(static_cast<uint32_t>(fault.file.size()),
                                 std::memory_order_release);
}

void Progress::failed_call(int os_error) {
  if (page_->fault_error.load(std::memory_order_relaxed) != 0) return;
  page_->fault_error.store(os_error, std::memory_order_relaxed);
}

void Progress::last_words(std::string_view message) {
  message = message.substr(0, message.find('\n'));
  const size_t length = std::min<size_t>(message.size(), kProgressMessageBytes);
  std::memcpy(page_->message, message.data(), length);
  page_->message_length.store(static_cast<uint32_t>(length), std::memory_order_release);
}

}  // namespace hpctl
