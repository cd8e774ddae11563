// SPDX-License-Identifier: Apache-2.0
// /metrics (Prometheus text) and /healthz, only on an address that was configured. Names begin with
// hpctl_; units are in the name.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "controller/agents/progress.h"
#include "controller/publish/status_files.h"

namespace hpctl {

class Metrics {
 public:
  // `address` HOST:PORT; port 0 = any free one.
  static Result<std::unique_ptr<Metrics>> open(const std::string& address);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // HOST:PORT with the port that was taken.
  const std::string& address() const { return address_; }

  // Owner thread.
  void transaction(double seconds, size_t events);
  void job(const JobView& view);
  // Of jobs of the trainer.
  void train(const JobView& view, const JobProgress& progress, const core::BadStepRecord& bad_step);
  void recovery(uint64_t job, const std::string& name, double seconds);
  void controller(size_t agents, size_t outbox);
  // Of a cluster controller, any thread: jobs, and those whose controller serves now.
  void cluster(size_t jobs, size_t serving);

 private:
  struct Parts;
  Metrics(std::string address, std::unique_ptr<Parts> parts);

  std::string address_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace hpctl
