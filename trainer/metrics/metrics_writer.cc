// SPDX-License-Identifier: Apache-2.0
#include "trainer/metrics/metrics_writer.h"

#include <fcntl.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/log.h"

namespace hpctl {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

template <typename... Values>
void put(std::string& out, const char* format, Values... values) {
  std::array<char, 80> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  out += text.data();
}

}  // namespace

double Throughput::tokens_per_s(const StepMetrics& m) const {
  return static_cast<double>(m.tokens) / m.step_s;
}
double Throughput::tflops(const StepMetrics& m) const {
  return tokens_per_s(m) * flops.whole / world_size * 1e-12;
}
double Throughput::tflops_causal(const StepMetrics& m) const {
  return tokens_per_s(m) * flops.causal / world_size * 1e-12;
}

StepFigures figures_of(const StepMetrics& m, const Throughput& t) {
  const auto nanoseconds = [](double seconds) { return static_cast<uint64_t>(seconds * 1e9); };
  StepFigures figures;
  figures.learning_rate = static_cast<float>(m.lr);
  figures.flops = static_cast<float>(t.tflops(m) * 1e12);
  figures.flops_causal = static_cast<float>(t.tflops_causal(m) * 1e12);
  if (t.peak_flops > 0) {
    figures.mfu = static_cast<float>(t.mfu_percent(t.tflops(m)) / 100);
    figures.mfu_causal = static_cast<float>(t.mfu_percent(t.tflops_causal(m)) / 100);
  }
  figures.peak_memory_bytes = static_cast<uint64_t>(m.peak_memory_bytes);
  figures.compute_ns = nanoseconds(m.compute_s);
  figures.data_wait_ns = nanoseconds(m.data_s);
  figures.communication_ns = nanoseconds(m.comm_under_way_s);
  figures.communication_wait_ns = nanoseconds(m.comm_s);
  figures.data_waits_ns = nanoseconds(m.data_waits_s);
  figures.save_waits_ns = nanoseconds(m.save_waits_s);
  figures.snapshot_step = m.snapshot_step;
  return figures;
}

std::string console_line(const StepMetrics& m, const Throughput& t) {
  std::string line;
  put(line, "step %llu loss %.4f grad_norm %.4f lr %.3g", static_cast<unsigned long long>(m.step),
      m.loss, m.grad_norm, m.lr);
  put(line, " tokens/s %.0f tflops %.4g/%.4g", t.tokens_per_s(m), t.tflops(m), t.tflops_causal(m));
  if (t.peak_flops > 0) {
    put(line, " mfu %.1f/%.1f %%", t.mfu_percent(t.tflops(m)), t.mfu_percent(t.tflops_causal(m)));
  }
  put(line, " memory %.2f GiB step %.1f ms comm %.1f %%",
      static_cast<double>(m.peak_memory_bytes) / kGiB, m.step_s * 1e3, percent(m.comm_s, m.step_s));
  if (m.comm_under_way_s > 0) {
    put(line, " overlap %.1f %%", 100 * overlap_share(m.comm_under_way_s, m.comm_s));
  }
  put(line, " data %.1f %%", percent(m.data_s, m.step_s));
  if (m.loss_scale > 0) {
    put(line, " loss_scale %llu overflows %llu", static_cast<unsigned long long>(m.loss_scale),
        static_cast<unsigned long long>(m.overflows));
  }
  return line;
}

MetricsWriter::MetricsWriter(std::string path, const Throughput& throughput)
    : path_(std::move(path)), throughput_(throughput) {
  if (path_.empty()) return;
  fd_.reset(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  has_lines_ = fd_.valid();
  if (!fd_.valid()) log_warning(errno_error("no metrics: cannot open " + path_).message);
}

MetricsWriter::~MetricsWriter() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    arrived_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void MetricsWriter::open_events(const std::string& directory, uint64_t first_step) {
  auto file = EventFile::create(directory, first_step);
  if (file.ok()) {
    events_.emplace(std::move(file).value());
    has_events_ = true;
  } else {
    log_warning("no TensorBoard events: " + file.error().message);
  }
}

void MetricsWriter::append(const StepMetrics& metrics) {
  if (has_lines_) append_line(metrics);
  if (has_events_) append_events(metrics);
}

void MetricsWriter::append_line(const StepMetrics& m) {
  nlohmann::ordered_json line = {
      {"step", m.step},
      {"generation", m.generation},
      {"loss", m.loss},
      {"grad_norm", m.grad_norm},
      {"lr", m.lr},
      {"tokens_per_s", throughput_.tokens_per_s(m)},
      {"step_ms", m.step_s * 1e3},
      {"comm_ms", m.comm_s * 1e3},
      {"data_ms", m.data_s * 1e3},
      {"save_ms", m.save_s * 1e3},
      {"tflops", throughput_.tflops(m)},
      {"tflops_causal", throughput_.tflops_causal(m)},
      {"peak_memory_bytes", m.peak_memory_bytes},
  };
  if (throughput_.peak_flops > 0) {
    line["mfu"] = throughput_.mfu_percent(throughput_.tflops(m)) / 100;
    line["mfu_causal"] = throughput_.mfu_percent(throughput_.tflops_causal(m)) / 100;
  }
  if (m.comm_under_way_s > 0) {
    line["comm_under_way_ms"] = m.comm_under_way_s * 1e3;
    line["comm_overlap"] = overlap_share(m.comm_under_way_s, m.comm_s);
  }
  if (m.loss_scale > 0) {
    line["loss_scale"] = m.loss_scale;
    line["overflows"] = m.overflows;
  }
  if (m.loss_tokens < m.tokens) {
    line["tokens"] = m.tokens;
    line["loss_tokens"] = m.loss_tokens;
  }
  if (m.failed_saves > 0) line["failed_saves"] = m.failed_saves;
  line["time"] = static_cast<double>(SystemClock().wall_ms()) / 1000.0;
  put(To::kLines, json_text(line) + "\n");
}

void MetricsWriter::append_evaluation(const EvaluationMetrics& m) {
  const std::string tag = m.part + "_metrics/loss";
  if (has_events_) append_scalars(m.step, {{tag.c_str(), m.loss}});
  if (!has_lines_) return;
  const nlohmann::ordered_json line = {
      {"step", m.step},           {"generation", m.generation},
      {m.part + "_loss", m.loss}, {"perplexity", std::exp(m.loss)},
      {"sequences", m.sequences}, {"time", static_cast<double>(SystemClock().wall_ms()) / 1000.0},
  };
  put(To::kLines, json_text(line) + "\n");
}

void MetricsWriter::put(To to, std::string bytes) {
  const std::lock_guard lock(mutex_);
  if (waiting_bytes_ + bytes.size() > kMostWaitingBytes) {
    if (dropped_bytes_ == 0) log_warning("metrics are dropped: the file server does not answer");
    dropped_bytes_ += bytes.size();
    return;
  }
  if (dropped_bytes_ > 0) {
    log_warning("metrics are written again; " + std::to_string(dropped_bytes_) + " bytes are lost");
    dropped_bytes_ = 0;
  }
  waiting_bytes_ += bytes.size();
  waiting_.push_back({to, std::move(bytes)});
  arrived_.notify_one();
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void MetricsWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    arrived_.wait(lock, [this] { return is_over_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    write(next);
    lock.lock();
    waiting_bytes_ -= next.bytes.size();
    if (waiting_bytes_ == 0) written_.notify_all();
  }
}

void MetricsWriter::await_written(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (written_.wait_for(lock, limit, [this] { return waiting_bytes_ == 0; })) return;
  log_warning("the last " + std::to_string(waiting_bytes_) +
              " bytes of metrics are lost: the file server does not answer");
}

void MetricsWriter::write(const Waiting& waiting) {
  if (waiting.to == To::kLines && fd_.valid()) {
    if (const Outcome written = write_all(fd_.get(), waiting.bytes, path_); !written.ok()) {
      log_warning("no more metrics: " + written.error().message);
      has_lines_ = false;
      fd_.reset();
    }
  } else if (waiting.to == To::kEvents && events_) {
    if (const Outcome written = events_->append(waiting.bytes); !written.ok()) {
      log_warning("no more TensorBoard events: " + written.error().message);
      has_events_ = false;
      events_.reset();
    }
  }
}

// TorchTitan's tags where it has them, so that runs of both lie in the same charts.
void MetricsWriter::append_events(const StepMetrics& m) {
  const double tflops = throughput_.tflops(m);
  const double causal = throughput_.tflops_causal(m);
  Scalars scalars = {
      {"loss_metrics/global_avg_loss", m.loss},
      {"grad_norm", m.grad_norm},
      {"lr", m.lr},
      {"throughput(tps)", throughput_.tokens_per_s(m) / throughput_.world_size},
      {"tflops", tflops},
      {"tflops_causal", causal},
      {"time_metrics/end_to_end(s)", m.step_s},
      {"time_metrics/data_loading(s)", m.data_s},
      {"time_metrics/data_loading(%)", percent(m.data_s, m.step_s)},
      {"time_metrics/communication(%)", percent(m.comm_s, m.step_s)},
      {"time_metrics/checkpoint(s)", m.save_s},
      {"memory/max_active(GiB)", static_cast<double>(m.peak_memory_bytes) / kGiB},
  };
  if (throughput_.peak_flops > 0) {
    scalars.emplace_back("mfu(%)", throughput_.mfu_percent(tflops));
    scalars.emplace_back("mfu_causal(%)", throughput_.mfu_percent(causal));
  }
  if (m.comm_under_way_s > 0) {
    scalars.emplace_back("time_metrics/communication_overlap(%)",
                         100 * overlap_share(m.comm_under_way_s, m.comm_s));
  }
  if (m.loss_scale > 0) {
    scalars.emplace_back("loss_scale", static_cast<double>(m.loss_scale));
    scalars.emplace_back("overflows", static_cast<double>(m.overflows));
  }
  if (m.loss_tokens < m.tokens) {
    scalars.emplace_back("loss_tokens", static_cast<double>(m.loss_tokens));
  }
  append_scalars(m.step, scalars);
}

void MetricsWriter::append_scalars(uint64_t step, const Scalars& scalars) {
  put(To::kEvents, EventFile::record_of(step, scalars));
}

}  // namespace hpctl
