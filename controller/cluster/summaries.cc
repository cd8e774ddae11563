// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/summaries.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "common/base/log.h"
#include "common/process/user_name.h"
#include "common/rpc/job_channel.h"
#include "common/rpc/job_summary_wire.h"

namespace hpctl::cluster {

struct Summaries::Call {
  JobKey key;
  grpc::ClientContext context;
  v1::ListJobsResponse response;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ListJobsResponse>> reader;
};

Summaries::Summaries(ListJobs jobs, FleetLemons& lemons, Metrics* metrics, std::string ended)
    : jobs_(std::move(jobs)), lemons_(lemons), metrics_(metrics), kept_(std::move(ended), clock_) {
  auto kept = kept_.load();
  if (!kept.ok()) log_warning("how jobs ended before is not known: " + kept.error().message);
  if (kept.ok()) heard_.restore(std::move(*kept));
}

Summaries::~Summaries() { stop(); }

void Summaries::start() {
  thread_ = std::thread([this] { run(); });
}

void Summaries::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& call : calls_) call->context.TryCancel();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Summaries::run() {
  for (;;) {
    const auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(kRoundMs);
    const std::vector<JobAddress> jobs = jobs_();
    forget_others(jobs);
    ask_all(jobs);
    lemons_.save(false);
    if (metrics_ != nullptr) show();
    std::unique_lock lock(mutex_);
    if (changed_.wait_until(lock, due, [this] { return stopping_; })) return;
  }
}

void Summaries::forget_others(const std::vector<JobAddress>& jobs) {
  std::set<JobKey> keys;
  for (const JobAddress& job : jobs) keys.insert(job.key);
  std::erase_if(peers_, [&](const auto& peer) { return !keys.contains(peer.first); });
  {
    const std::lock_guard lock(mutex_);
    if (!heard_.retain(keys, clock_.monotonic_ms())) return;
  }
  keep();
}

// At the first word of an end, too: a service that is killed before the job's controller is gone
// would forget what it has already shown.
void Summaries::keep() {
  std::vector<JobReports::Ended> ended;
  {
    const std::lock_guard lock(mutex_);
    ended = heard_.kept(clock_.monotonic_ms());
  }
  if (const auto written = kept_.write(ended); !written.ok()) log_error(written.error().message);
}

// nullptr: no controller serves, or its identity cannot be known.
v1::Controller::Stub* Summaries::stub_of(const JobAddress& job) {
  Peer& peer = peers_[job.key];
  if (peer.stub == nullptr || peer.address != job.address || peer.certificate != job.certificate) {
    peer = {job.address, job.certificate, nullptr};
    if (job.address.empty()) return nullptr;
    auto channel = connect_address(job.address, job.certificate, job.token);
    if (channel.ok()) peer.stub = v1::Controller::NewStub(std::move(*channel));
  }
  return peer.stub.get();
}

void Summaries::ask_all(const std::vector<JobAddress>& jobs) {
  for (size_t first = 0; first < jobs.size(); first += kAtOnce) {
    grpc::CompletionQueue queue;
    Calls calls;
    std::vector<v1::Controller::Stub*> stubs;
    for (size_t i = first; i < std::min(jobs.size(), first + kAtOnce); ++i) {
      v1::Controller::Stub* stub = stub_of(jobs[i]);
      if (stub == nullptr) continue;
      auto call = std::make_unique<Call>();
      call->key = jobs[i].key;
      call->context.set_deadline(std::chrono::system_clock::now() +
                                 std::chrono::milliseconds(kAnswerMs));
      calls.push_back(std::move(call));
      stubs.push_back(stub);
    }
    const size_t count = calls.size();
    std::vector<Call*> begun;
    for (const auto& call : calls) begun.push_back(call.get());
    if (!begin(std::move(calls))) return;
    for (size_t i = 0; i < count; ++i) {
      begun[i]->reader = stubs[i]->AsyncListJobs(&begun[i]->context, {}, &queue);
      begun[i]->reader->Finish(&begun[i]->response, &begun[i]->status, begun[i]);
    }
    void* tag = nullptr;
    bool ok = false;
    for (size_t i = 0; i < count && queue.Next(&tag, &ok); ++i) take(*static_cast<Call*>(tag));
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
  }
}

// They are there for stop() to be cancelled until the next ones take their place. False: stopping.
bool Summaries::begin(Calls calls) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return false;
  calls_ = std::move(calls);
  return true;
}

void Summaries::take(const Call& call) {
  if (!call.status.ok()) return;
  for (const v1::JobSummary& said : call.response.jobs()) {
    if (said.job() != call.key.job) continue;
    JobSummary summary = to_job_summary(said);
    summary.owner = std::to_string(call.key.uid);
    lemons_.hear(call.key, std::exchange(summary.blamed, {}));
    v1::JobSummary plausible;
    fill(summary, plausible);
    bool has_ended = false;
    {
      const std::lock_guard lock(mutex_);
      has_ended = heard_.hear(call.key, std::move(plausible), clock_.monotonic_ms());
    }
    if (has_ended) keep();
    return;
  }
}

void Summaries::describe(const JobKey& key, v1::ClusterJob& job) const {
  const std::lock_guard lock(mutex_);
  if (const JobReports::Heard* heard = heard_.find(key)) *job.mutable_summary() = heard->summary;
  job.set_heard_ms(static_cast<uint64_t>(heard_.silent_ms(key, clock_.monotonic_ms())));
}

std::vector<v1::ClusterJob> Summaries::ended(std::optional<uid_t> whose,
                                             const JobKey& after) const {
  std::vector<JobReports::Heard> ended;
  {
    const std::lock_guard lock(mutex_);
    ended = heard_.ended();
  }
  std::vector<v1::ClusterJob> jobs;
  for (JobReports::Heard& heard : ended) {
    if (heard.key <= after || (whose && heard.key.uid != *whose)) continue;
    v1::ClusterJob& job = jobs.emplace_back();
    job.set_uid(heard.key.uid);
    job.set_job(heard.key.job);
    *job.mutable_summary() = std::move(heard.summary);
  }
  return jobs;
}

void Summaries::show() {
  std::vector<JobReports::Heard> heard;
  std::vector<int64_t> silent_ms;
  {
    const std::lock_guard lock(mutex_);
    heard = heard_.all();
    const int64_t now_ms = clock_.monotonic_ms();
    for (const auto& job : heard) silent_ms.push_back(heard_.silent_ms(job.key, now_ms));
  }
  std::vector<FleetJob> jobs;
  std::vector<JobSnapshot> snapshots;
  jobs.reserve(heard.size());
  for (size_t i = 0; i < heard.size(); ++i) {
    std::string user = std::to_string(heard[i].key.uid);
    if (std::string name = user_name(user); !name.empty()) user = std::move(name);
    JobSnapshot& snapshot = snapshots.emplace_back();
    snapshot.summary = to_job_summary(heard[i].summary);
    snapshot.user = user;
    snapshot.silent_ms = silent_ms[i];
    jobs.push_back({snapshot.summary, std::move(user)});
  }
  metrics_->fleet(std::move(jobs));
  watch_.look(snapshots, clock_.wall());
  metrics_->fleet_findings(watch_.present());
  std::vector<LemonScore> lemons;
  for (FleetLemon& lemon : lemons_.scores()) lemons.push_back(std::move(lemon.score));
  metrics_->fleet_lemons(std::move(lemons));
}

}  // namespace hpctl::cluster
