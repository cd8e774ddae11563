// SPDX-License-Identifier: Apache-2.0
// /metrics (Prometheus text) and /healthz, only if an address was configured. Names begin with
// hpctl_; units are in the name.
//
// Best effort: no job waits for them. If the port is taken, for example by another job's controller
// on this node, any free one is used, and the file of scrape_targets.h names it. Every client is a
// stranger (metrics_server.h). With a certificate, they are served by HTTPS (https_server.h), and
// in no other way.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/authority/served_identity.h"
#include "common/base/result.h"
#include "common/job/node_record.h"
#include "common/net/host_port.h"
#include "common/watch/finding.h"
#include "controller/agents/progress.h"
#include "controller/publish/fleet_metrics.h"
#include "controller/publish/loss_counts.h"
#include "controller/publish/status_files.h"

namespace hpctl {

// The label `kind` of a fault (docs/metrics.md).
const char* fault_kind(const core::Fault& fault);

class Metrics {
 public:
  // Called on the server's threads when an answer to a scrape begins, before it is made.
  using Scraped = std::function<void()>;

  // `address` HOST:PORT; port 0, or one that is taken = any free one. `served`, unless null: by
  // HTTPS, with that certificate; HOST is in numbers then, and `served` outlives this. An error
  // says what to do; the caller goes on without.
  static Result<std::unique_ptr<Metrics>> open(const std::string& address,
                                               const Scraped& scraped = {},
                                               const ServedIdentity* served = nullptr);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // HOST:PORT with the port that was taken.
  std::string address() const { return bound_.text(); }
  uint16_t port() const { return bound_.port; }
  // Why the address is not the requested one; "" = it is.
  const std::string& moved() const { return moved_; }

  // Owner thread.
  void transaction(double seconds, size_t events);
  void job(const JobView& view);
  // For jobs of the trainer.
  void train(const JobView& view, JobProgress progress, const core::BadStepRecord& bad_step);
  // For the job's nodes, from the data of this home.
  void lemons(const JobView& view, const std::vector<LemonScore>& scores);
  // All that is found of the job now.
  void findings(const JobView& view, const std::vector<Finding>& found);
  // What former controllers of the job have counted, once and first: counters go on from there, and
  // have a sample before the first loss.
  void losses(uint64_t job, const std::string& name, const LossCounts& counts);
  void recovery(uint64_t job, const std::string& name, double seconds);
  // From the last step before a fault until it was known.
  void detection(uint64_t job, const std::string& name, double seconds);
  // One that has been recovered from, or ended the job.
  void fault(uint64_t job, const std::string& name, const core::Fault& fault);
  void controller(size_t agents, size_t outbox);
  // Events that the rows of this controller have seen before.
  void former_events(uint64_t events);
  // For a cluster controller, any thread: jobs, and those whose controller serves now.
  void cluster(size_t jobs, size_t serving);
  // For a cluster controller: the expiry of its certificate and of its authority, in Unix seconds.
  void certificates(int64_t leaf_ends_s, int64_t authority_ends_s);
  // Likewise: what each of these does.
  void fleet(std::vector<FleetJob> jobs);
  // Likewise: what all users' jobs say against machines, highest first.
  void fleet_lemons(std::vector<LemonScore> scores);
  // Likewise: what is found of all jobs.
  void fleet_findings(std::vector<Finding> findings);

 private:
  struct Parts;
  Metrics(HostPort bound, std::unique_ptr<Parts> parts);

  const HostPort bound_;
  std::string moved_;
  std::unique_ptr<Parts> parts_;
};

struct OpenedMetrics {
  std::unique_ptr<Metrics> metrics;  // null = there are none
  std::string trouble;               // what is not as it was asked for; "" = nothing. It is logged
};
// `address` as of Metrics::open(), or "" for none.
OpenedMetrics open_metrics(const std::string& address, const Metrics::Scraped& scraped = {},
                           const ServedIdentity* served = nullptr);

}  // namespace hpctl
