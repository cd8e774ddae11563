// SPDX-License-Identifier: Apache-2.0
// The controller as a whole: takes the lock on its state, loads the rows, and joins the owner loop
// with the parts around it. start() returns when it serves; stop() closes streams, store and
// socket. Jobs go on without it.
#pragma once

#include <grpcpp/server.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/job/paths.h"
#include "common/watch/job_watch.h"
#include "controller/access/authenticator.h"
#include "controller/access/gate.h"
#include "controller/access/local_listener.h"
#include "controller/access/tcp_listener.h"
#include "controller/agents/agent_link.h"
#include "controller/agents/liveness.h"
#include "controller/agents/progress.h"
#include "controller/api/event_feed.h"
#include "controller/api/service.h"
#include "controller/engine/launch_watch.h"
#include "controller/engine/owner_loop.h"
#include "controller/engine/task_lanes.h"
#include "controller/leadership/controller_mode.h"
#include "controller/leadership/options.h"
#include "controller/notify/core/notice_maker.h"
#include "controller/notify/notifier.h"
#include "controller/page/page_answers.h"
#include "controller/page/status_page.h"
#include "controller/publish/audit_log.h"
#include "controller/publish/loss_counter.h"
#include "controller/publish/metrics.h"
#include "controller/publish/node_history.h"
#include "controller/publish/scrape_linger.h"
#include "controller/publish/status_file_writer.h"
#include "controller/schedulers/scheduler.h"

namespace hpctl {

class Controller final : public OwnerEffects {
 public:
  // `mode` outlives the controller.
  Controller(const HomePaths& paths, const ControllerOptions& options, ControllerMode& mode);
  ~Controller() override;  // as stop()

  // kAlreadyExists when another controller runs on this home.
  Outcome start();
  // The job's verdict, once nothing of it runs here any more; before stop(). May wait for seconds.
  void complete(int exit_code);
  // Until how the job ended has been seen (scrape_linger.h), or `interrupt` is readable.
  void linger_for_scrape(int interrupt, ScrapeLinger::Readers readers) {
    scrape_linger_.wait(interrupt, readers);
  }
  // The directories and programs that hang: none, or the process is to be left by
  // leave_with_hung_lanes(), because the destructor waits for them.
  std::vector<std::string> stop();

  // Of the metrics; 0 = there are none.
  uint16_t metrics_port() const { return metrics_ ? metrics_->port() : uint16_t{0}; }

  // No live job, no agent, no client; `calls` tells whether it was so all the time.
  bool is_idle() const;
  uint64_t calls() const { return service_->calls() + page_->requests(); }
  // Any thread: the job's nodes with recent heartbeats (controller/agents/liveness.h).
  std::set<std::string> heard_nodes(JobId job) {
    return liveness_.heard_nodes(job, loop_->now_ms());
  }
  // Any thread; once: a signal told every node of the job to end.
  bool take_told_to_end(JobId job) { return agents_->told_nodes().take_whole(job); }
  // Decided by the core like any other event.
  void post(core::EventBody event) { loop_->post(std::move(event)); }

 private:
  // OwnerEffects
  void committed(const Committed& batch) override;
  void perform(const core::Action& action, const core::State& state) override;
  std::vector<core::EventBody> sweep(int64_t now_ms) override;
  std::vector<core::TrainingSeen> confirm(std::vector<core::TrainingSeen> doubted,
                                          int64_t now_ms) override;
  void ask_whether_suspended(JobId job);
  void probe(std::vector<Liveness::Probe> probes);
  void stalled(int64_t now_ms) override {
    liveness_.rearm(now_ms);
    progress_.rearm(now_ms);
  }

  // A fault on purpose that the next search for a checkpoint meets.
  struct DirectoryFault {
    InjectedFault fault;
    core::LogEntry told;  // FaultInjected
  };

  Outcome take_lock();
  void tell_about_metrics(const core::State& loaded);
  void build(core::State state, std::unique_ptr<Store> store, std::unique_ptr<Store> reader);
  Outcome build_server();
  Outcome open_door();
  void begin_job();
  Outcome publish();
  void in_targets_lane(TaskLanes::Task task);
  void publish_targets(const std::string& metrics) const;
  void recall(const core::State& state);
  void observe_job(const Committed& batch, JobId id);
  bool claim(ActionId action, const core::Job& job, bool tells_former_owner);
  std::optional<DirectoryFault> take_directory_fault(const core::Job& job);
  bool is_away_on_purpose(ActionId search, const core::Job& job,
                          const std::optional<DirectoryFault>& fault);
  void damage(const core::LogEntry& told, const core::EventBody& found,
              const std::string& directory);
  bool claim_mirror_of(ActionId action, const core::Job& job);
  // True while the newest order of a job is still wanted.
  using WantedOrders = std::map<JobId, std::shared_ptr<std::atomic<bool>>>;
  static std::function<bool()> begin(WantedOrders& orders, JobId job);
  static void interrupt(WantedOrders& orders, JobId job);
  void interrupt_withdrawn_records(const core::State& state);
  void append_event_files(const Committed& batch);
  void show(const core::State& state, JobId id);
  void notify(const core::Job& job, const std::vector<Notice>& notices);
  void notify_of(const Committed& batch);
  void conclude(const core::State& state, JobId id);
  void let_nodes_end(const core::State& state, JobId id);
  const HomePaths paths_;
  const ControllerOptions options_;
  ControllerMode& mode_;
  const SystemClock clock_;
  UniqueFd lock_;
  std::string address_;  // of the TCP listener; "" = none
  RendezvousPorts ports_;
  Liveness liveness_;
  ProgressTable progress_;

  // Owner thread only.
  struct Shown {
    int64_t at_ms = 0;
    int64_t took_ms = 0;
    core::JobState state = core::JobState::kPending;
    Generation generation;
    LossCounter losses;
    bool stale = false;  // changed since it was shown
    bool spec_written = false;
    bool suspended = false;
    JobWatch watch{true};
    NoticeMaker notices;
    // Its last word (ControllerMode::job_ended).
    bool is_being_said = false;
    bool is_said = false;
  };
  static bool is_to_be_shown(const Shown& shown, int64_t now_ms);
  std::map<JobId, Shown> shown_;
  std::optional<LossCounts> former_losses_;  // counted before this controller took the job over
  std::map<JobId, DirectoryFault> directory_faults_;
  std::map<JobId, int64_t> away_until_ms_;  // storage-away; monotonic
  WantedOrders prunes_;
  WantedOrders mirrors_;
  WantedOrders records_;
  std::map<JobId, ActionId> recording_;  // the orders of records_ that the core has not withdrawn
  LaunchWatch launches_{clock_};
  int64_t look_at_all_ms_ = 0;  // next time; the owner thread

  std::atomic<bool> has_work_{false};  // a live job, a node not ended, an open action

  ScrapeLinger scrape_linger_{clock_};
  bool is_complete_ = false;  // complete() was called
  std::unique_ptr<Metrics> metrics_;
  std::string metrics_note_;  // what is wrong with them; "" = nothing
  std::unique_ptr<JobDirectories> job_directories_;
  std::unique_ptr<StatusFileWriter> status_files_;
  std::unique_ptr<NodeHistory> history_;
  std::unique_ptr<EventFeed> feed_;
  std::unique_ptr<TaskLanes> directories_;  // a lane for each
  std::unique_ptr<TaskLanes> probes_;       // of holders; each ends within a second
  std::unique_ptr<TaskLanes> targets_;      // one lane: the file that names our metrics
  std::unique_ptr<TaskLanes> starts_;       // a lane for each node, and one for the scheduler
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<OwnerLoop> loop_;
  std::unique_ptr<Notifier> notifier_;
  std::unique_ptr<PageAnswers> page_answers_;  // before the page, which asks it
  std::unique_ptr<StatusPage> page_;
  std::unique_ptr<AgentLink> agents_;
  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<ControllerService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<LocalListener> listener_;
  std::unique_ptr<TcpListener> tcp_listener_;
};

}  // namespace hpctl
