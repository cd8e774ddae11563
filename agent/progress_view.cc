// SPDX-License-Identifier: Apache-2.0
#include "agent/progress_view.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "agent/core/printable.h"

namespace hpctl {

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
  sample.tokens = page_->tokens.load(std::memory_order_relaxed);
  sample.step_ns = page_->step_ns.load(std::memory_order_relaxed);
  sample.checkpoint_step = page_->checkpoint_step.load(std::memory_order_relaxed);
  sample.start_unix_ns = page_->start_unix_ns.load(std::memory_order_relaxed);
  sample.first_step_unix_ns = page_->first_step_unix_ns.load(std::memory_order_relaxed);
  return sample;
}

std::string ProgressView::message() const {
  if (!written()) return "";
  const uint32_t length =
      std::min(page_->message_length.load(std::memory_order_acquire), kProgressMessageBytes);
  return agent::printable_line(std::string(page_->message, length), kProgressMessageBytes);
}

}  // namespace hpctl
