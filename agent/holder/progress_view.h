// SPDX-License-Identifier: Apache-2.0
// ProgressView: reads the progress block of a worker, which may write anything at any time. A value
// that no trainer writes (an impossible step or an unknown phase) makes the reading a damaged one.
#pragma once

#include <string>
#include <vector>

#include "agent/core/progress.h"
#include "common/job/file_fault.h"
#include "common/worker/worker_abi.h"

namespace hpctl {

class ProgressView {
 public:
  // Maps the page of `memfd`, which the holder has sealed against shrinking. A page that cannot be
  // mapped reads as one the worker never mapped.
  explicit ProgressView(int memfd);
  ~ProgressView();
  ProgressView(const ProgressView&) = delete;
  ProgressView& operator=(const ProgressView&) = delete;

  agent::ProgressSample sample() const;
  // The newest bad steps that the page still holds, in order.
  std::vector<BadStep> bad_steps() const;
  // Why the worker is about to exit: one printable line; "" = it did not say.
  std::string message() const;
  // The part of a file that the message is about; without a name where it is about none, or the
  // worker is of a release before.
  FileFault file_fault() const;

 private:
  bool written() const;

  const ProgressPage* page_ = nullptr;
};

}  // namespace hpctl
