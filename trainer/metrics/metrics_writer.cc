// SPDX-License-Identifier: Apache-2.0
#include "trainer/metrics/metrics_writer.h"

#include <fcntl.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"

namespace hpctl {

MetricsWriter::MetricsWriter(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  fd_.reset(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd_.valid()) log_warning(errno_error("no metrics: cannot open " + path_).message);
}

void MetricsWriter::append(const StepMetrics& m) {
  if (!fd_.valid()) return;
  const nlohmann::ordered_json line = {
      {"step", m.step},
      {"generation", m.generation},
      {"loss", m.loss},
      {"grad_norm", m.grad_norm},
      {"lr", m.lr},
      {"tokens_per_s", m.tokens_per_s},
      {"step_ms", m.step_ms},
      {"comm_ms", m.comm_ms},
      {"time", static_cast<double>(SystemClock().wall_ms()) / 1000.0},
  };
  write_line(line.dump() + "\n");
}

void MetricsWriter::append_validation(uint64_t step, uint64_t generation, double loss,
                                      uint64_t sequences) {
  if (!fd_.valid()) return;
  const nlohmann::ordered_json line = {
      {"step", step},
      {"generation", generation},
      {"validation_loss", loss},
      {"perplexity", std::exp(loss)},
      {"sequences", sequences},
      {"time", static_cast<double>(SystemClock().wall_ms()) / 1000.0},
  };
  write_line(line.dump() + "\n");
}

void MetricsWriter::write_line(const std::string& line) {
  const Outcome written = write_all(fd_.get(), line, path_);
  if (written.ok()) return;
  log_warning("no more metrics: " + written.error().message);
  fd_.reset();
}

}  // namespace hpctl
