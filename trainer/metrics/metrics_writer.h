// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object per completed step, appended by rank 0 with a single write, so
// that readers never see half a line of a running job. After a recovery the steps since the last
// checkpoint appear again under the new generation: a reader keeps the last line of a step.
//
//   {"step","generation","loss","grad_norm","lr","tokens_per_s","step_ms","comm_ms","time"}
//   {"step","generation","validation_loss","perplexity","sequences","time"} after a validation
//
// loss = mean cross entropy (nats) over the tokens of the step; grad_norm before clipping; comm_ms
// = time rank 0 waited for collectives; time = Unix seconds, a label.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/fd.h"

namespace hpctl {

struct StepMetrics {
  uint64_t step = 0;
  uint64_t generation = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double tokens_per_s = 0;
  double step_ms = 0;
  double comm_ms = 0;
};

class MetricsWriter {
 public:
  // "" writes nothing. Metrics never stop a job: a file that cannot be opened or written is
  // reported once in the log and given up.
  explicit MetricsWriter(std::string path);
  void append(const StepMetrics& metrics);
  // After the line of the step.
  void append_validation(uint64_t step, uint64_t generation, double loss, uint64_t sequences);

 private:
  void write_line(const std::string& line);

  std::string path_;
  UniqueFd fd_;
};

}  // namespace hpctl
