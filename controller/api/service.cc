// SPDX-License-Identifier: Apache-2.0
#include "controller/api/service.h"

#include <unistd.h>

#include <algorithm>
#include <future>
#include <map>

#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/random_hex.h"
#include "common/rpc/job_summary_wire.h"
#include "common/rpc/status.h"
#include "controller/api/event_watcher.h"
#include "controller/api/job_lookup.h"
#include "controller/core/blame.h"
#include "controller/core/explain.h"
#include "controller/publish/job_view.h"

namespace hpctl {
namespace {

constexpr size_t kMaxReasonBytes = 512;

const grpc::Status& stopping() {
  static const grpc::Status status(grpc::StatusCode::UNAVAILABLE, "the controller is stopping");
  return status;
}

// " name=value", for the audit log; "" where there is no value.
std::string in_short(const char* name, const std::string& value) {
  return value.empty() ? "" : std::string(" ") + name + "=" + value;
}

void finish(grpc::ServerUnaryReactor* reactor, grpc::Status status) {
  HP_FAILPOINT("controller.rpc_answer.before");
  reactor->Finish(std::move(status));
  HP_FAILPOINT("controller.rpc_answer.after");
}

}  // namespace

ControllerService::ControllerService(const HomePaths& paths, ControllerIdentity identity,
                                     const Gate& gate, OwnerLoop& loop, EventFeed& feed,
                                     ProgressTable& progress, AgentLink& agents,
                                     FailDirectory fail_directory, MakePageLink make_page_link,
                                     Lemons lemons, Listed listed)
    : paths_(paths),
      identity_(std::move(identity)),
      gate_(gate),
      loop_(loop),
      feed_(feed),
      progress_(progress),
      agents_(agents),
      fail_directory_(std::move(fail_directory)),
      make_page_link_(std::move(make_page_link)),
      lemons_(std::move(lemons)),
      listed_(std::move(listed)) {}

Entry ControllerService::enter(const grpc::CallbackServerContext* context, Rpc rpc) {
  ++calls_;
  return gate_.enter(*context, rpc);
}

grpc::ServerUnaryReactor* ControllerService::reply(grpc::CallbackServerContext* context,
                                                   grpc::Status status) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(std::move(status));
  return reactor;
}

absl::StatusOr<JobId> ControllerService::look_up(const std::string& text, const Caller& caller,
                                                 Rpc rpc) {
  std::promise<absl::StatusOr<JobId>> found;
  loop_.ask([&](const core::State* state) {
    found.set_value(state == nullptr
                        ? absl::StatusOr<JobId>(absl::UnavailableError(stopping().error_message()))
                        : find_job(*state, text, caller.acts_for));
  });
  auto job = found.get_future().get();
  if (!job.ok()) gate_.ended(caller, rpc, 0, in_short("job", text), to_grpc(job.status()));
  return job;
}

grpc::ServerUnaryReactor* ControllerService::answer(grpc::CallbackServerContext* context, Rpc rpc,
                                                    const Caller& caller, Answer answer) {
  auto* reactor = context->DefaultReactor();
  loop_.ask([this, reactor, rpc, caller, answer = std::move(answer)](const core::State* state) {
    const grpc::Status status = state == nullptr ? stopping() : answer(*state);
    gate_.ended(caller, rpc, 0, "", status);
    finish(reactor, status);
  });
  return reactor;
}

grpc::ServerUnaryReactor* ControllerService::Submit(grpc::CallbackServerContext* context,
                                                    const v1::SubmitRequest* request,
                                                    v1::SubmitResponse* response) {
  const Entry entry = enter(context, Rpc::kSubmit);
  if (!entry) return reply(context, entry.refusal);
  const auto ended = [this, caller = *entry](JobId job, const std::string& name,
                                             const grpc::Status& status) {
    gate_.ended(caller, Rpc::kSubmit, job.value, in_short("name", name), status);
    return status;
  };
  if (!identity_.accepts_jobs) {
    return reply(context,
                 ended({}, "",
                       {grpc::StatusCode::FAILED_PRECONDITION,
                        "this controller has one job and takes no other; see hpctl submit"}));
  }
  auto spec = job_spec_from_json(request->spec_json());
  if (!spec.ok()) return reply(context, ended({}, "", to_grpc(to_absl(spec.error()))));
  const std::string name = spec->name;
  std::string key = request->submit_key();
  if (key.empty()) {  // it is the job's UUID, too
    auto made = random_key();
    if (!made.ok()) return reply(context, ended({}, name, to_grpc(to_absl(made.error()))));
    key = std::move(*made);
  }
  auto* reactor = context->DefaultReactor();
  HP_FAILPOINT("controller.submit.received");
  loop_.post(
      [this, spec = std::move(*spec), uid = entry->uid,
       key = std::move(key)](const core::State& state) mutable {
        if (spec.checkpoint.dir.empty()) {
          // The core gives the job the next number.
          spec.checkpoint.dir = paths_.default_checkpoints(core::next_local_id(state));
        }
        return std::optional<core::EventBody>(core::JobSubmitted{std::move(spec), uid, key});
      },
      [reactor, response, name, ended](const core::StepResult* result, const core::State*) {
        if (result == nullptr) {
          finish(reactor, stopping());
        } else if (!result->submitted) {
          finish(reactor, ended({}, name, to_grpc(absl::InvalidArgumentError(result->refusal))));
        } else {
          response->set_job(result->submitted->value);
          finish(reactor, ended(*result->submitted, name, grpc::Status::OK));
        }
      });
  return reactor;
}

grpc::ServerUnaryReactor* ControllerService::GetJob(grpc::CallbackServerContext* context,
                                                    const v1::GetJobRequest* request,
                                                    v1::JobStatus* response) {
  const Entry entry = enter(context, Rpc::kGetJob);
  if (!entry) return reply(context, entry.refusal);
  return answer(context, Rpc::kGetJob, *entry,
                [this, request, response, uid = entry->acts_for](const core::State& state) {
                  const auto job = find_job(state, request->job(), uid);
                  if (!job.ok()) return to_grpc(job.status());
                  JobView view = make_job_view(state, *job, progress_.of(*job), identity_.node,
                                               loop_.now_ms());
                  note_lemons(view, lemons_());
                  fill(view, *response);
                  return grpc::Status::OK;
                });
}

grpc::ServerUnaryReactor* ControllerService::ListJobs(grpc::CallbackServerContext* context,
                                                      const v1::ListJobsRequest*,
                                                      v1::ListJobsResponse* response) {
  const Entry entry = enter(context, Rpc::kListJobs);
  if (!entry) return reply(context, entry.refusal);
  return answer(
      context, Rpc::kListJobs, *entry,
      [this, response, uid = entry->acts_for](const core::State& state) {
        const int64_t wall_ms = SystemClock().wall_ms();
        const std::vector<LemonScore> lemons = lemons_();
        for (const auto& [id, job] : state.jobs) {
          if (!may_see(uid, job)) continue;
          JobView view = make_job_view(state, id, progress_.of(id), identity_.node, loop_.now_ms());
          note_lemons(view, lemons);
          JobSummary summary = summarize(view, WallTime(wall_ms));
          summary.blamed = gravest_records(core::blame_of(state, job, wall_ms), kMostBlamed);
          fill(summary, *response->add_jobs());
        }
        listed_();
        return grpc::Status::OK;
      });
}

grpc::ServerUnaryReactor* ControllerService::order(grpc::CallbackServerContext* context,
                                                   Order order) {
  const Entry entry = enter(context, order.rpc);
  if (!entry) return reply(context, entry.refusal);
  auto* reactor = context->DefaultReactor();
  const auto found = std::make_shared<absl::StatusOr<JobId>>(absl::NotFoundError(""));
  const auto ended = [this, caller = *entry, rpc = order.rpc, found, said = order.job,
                      arguments = std::move(order.arguments)](const grpc::Status& status) {
    gate_.ended(caller, rpc, found->ok() ? (*found)->value : 0,
                arguments + (found->ok() ? "" : in_short("job", said)), status);
    return status;
  };
  loop_.post(
      [found, caller = *entry, job = order.job,
       make = std::move(order.make)](const core::State& state) -> std::optional<core::EventBody> {
        *found = find_job(state, job, caller.acts_for);
        if (!found->ok()) return std::nullopt;
        // The data for its next session have been written, and it may be in the queue by now.
        if (state.jobs.at(**found).stage == core::PlanStage::kRequeue) {
          *found = absl::UnavailableError("job " + to_string(**found) +
                                          " is being requeued; say it again when it has started");
          return std::nullopt;
        }
        return make(**found, caller.uid);
      },
      [found, reactor, ended, answer = std::move(order.answer)](const core::StepResult* result,
                                                                const core::State* state) {
        if (state == nullptr) {
          finish(reactor, ended(stopping()));
        } else if (!found->ok()) {
          finish(reactor, ended(to_grpc(found->status())));
        } else if (!result->refusal.empty()) {
          finish(reactor, ended(to_grpc(absl::FailedPreconditionError(result->refusal))));
        } else {
          const grpc::Status done = ended(grpc::Status::OK);  // the answer may end this process
          answer(state->jobs.at(**found), result->log.front());
          finish(reactor, done);
        }
      });
  return reactor;
}

grpc::ServerUnaryReactor* ControllerService::Cancel(grpc::CallbackServerContext* context,
                                                    const v1::CancelRequest* request,
                                                    v1::CancelResponse* response) {
  const std::string reason = request->reason().substr(0, kMaxReasonBytes);
  return order(context, {Rpc::kCancel, request->job(), in_short("reason", reason),
                         [reason, time_limit = request->time_limit()](JobId job, uint32_t uid) {
                           return core::CancelRequested{job, uid, reason, time_limit};
                         },
                         [response](const core::Job& job, const core::LogEntry&) {
                           response->set_state(core::shown_state(job));
                         }});
}

grpc::ServerUnaryReactor* ControllerService::RemoveJob(grpc::CallbackServerContext* context,
                                                       const v1::RemoveJobRequest* request,
                                                       v1::RemoveJobResponse*) {
  return order(context, {Rpc::kRemoveJob, request->job(), "",
                         [](JobId job, uint32_t uid) {
                           return core::JobRemoved{job, uid};
                         },
                         [](const core::Job&, const core::LogEntry&) {}});
}

grpc::ServerUnaryReactor* ControllerService::QuarantineNode(
    grpc::CallbackServerContext* context, const v1::QuarantineNodeRequest* request,
    v1::QuarantineNodeResponse*) {
  const std::string reason = request->reason().substr(0, kMaxReasonBytes);
  const int64_t for_ms = std::max<int64_t>(0, request->for_ms());
  return order(context, {Rpc::kQuarantineNode, request->job(),
                         in_short("node", request->node()) + in_short("reason", reason) +
                             (for_ms == 0 ? "" : in_short("for_ms", std::to_string(for_ms))),
                         [node = request->node(), reason, for_ms,
                          asks_first = request->asks_first()](JobId job, uint32_t uid) {
                           return core::QuarantineRequested{job,    node,   uid,
                                                            reason, for_ms, asks_first};
                         },
                         [](const core::Job&, const core::LogEntry&) {}});
}

grpc::ServerUnaryReactor* ControllerService::ReleaseNode(grpc::CallbackServerContext* context,
                                                         const v1::ReleaseNodeRequest* request,
                                                         v1::ReleaseNodeResponse*) {
  return order(context, {Rpc::kReleaseNode, request->job(), in_short("node", request->node()),
                         [node = request->node()](JobId job, uint32_t uid) {
                           return core::ReleaseRequested{job, node, uid};
                         },
                         [](const core::Job&, const core::LogEntry&) {}});
}

grpc::ServerUnaryReactor* ControllerService::RecoverNode(grpc::CallbackServerContext* context,
                                                         const v1::RecoverNodeRequest* request,
                                                         v1::RecoverNodeResponse*) {
  const std::string reason = request->reason().substr(0, kMaxReasonBytes);
  return order(context, {Rpc::kRecoverNode, request->job(),
                         in_short("node", request->node()) + in_short("reason", reason) +
                             in_short("by", request->reboot() ? "reboot" : "replacement"),
                         [node = request->node(), reason, reboot = request->reboot(),
                          asks_first = request->asks_first()](JobId job, uint32_t uid) {
                           return core::RecoveryRequested{job,    node,   uid,
                                                          reason, reboot, asks_first};
                         },
                         [](const core::Job&, const core::LogEntry&) {}});
}

// The event first, so that the history has the fault whatever it breaks.
grpc::ServerUnaryReactor* ControllerService::Inject(grpc::CallbackServerContext* context,
                                                    const v1::InjectRequest* request,
                                                    v1::InjectResponse* response) {
  const auto fault = from_word<InjectedFault>(request->fault());
  if (!fault) {
    const Entry entry = enter(context, Rpc::kInject);
    if (!entry) return reply(context, entry.refusal);
    const grpc::Status unknown(
        grpc::StatusCode::INVALID_ARGUMENT,
        "this controller knows no such fault, only " + all_words<InjectedFault>());
    gate_.ended(*entry, Rpc::kInject, 0, in_short("fault", request->fault()), unknown);
    return reply(context, unknown);
  }
  const FaultTarget target = target_of(*fault);
  return order(
      context,
      {Rpc::kInject, request->job(),
       in_short("fault", request->fault()) + in_short("node", request->node()) +
           in_short("rank", std::to_string(request->rank())),
       [fault = *fault, target, node = request->node(), rank = request->rank()](JobId job,
                                                                                uint32_t uid) {
         return core::FaultInjected{job, uid, fault, target == FaultTarget::kNode ? node : "",
                                    Rank{target == FaultTarget::kRank ? rank : -1}};
       },
       [this, response, fault = *fault, target](const core::Job& job, const core::LogEntry& told) {
         if (target == FaultTarget::kController) ::raise(traits_of(fault).signal);
         v1::InjectFault order;
         order.set_event_seq(told.seq.value);
         order.set_fault(to_word(fault));
         order.set_rank(told.rank);
         order.set_generation(told.generation.value);
         if (fails_directory(fault)) fail_directory_(fault, told);
         agents_.inject({job.id, told.node}, order);
         response->set_seq(told.seq.value);
       }});
}

grpc::ServerWriteReactor<v1::Event>* ControllerService::WatchEvents(
    grpc::CallbackServerContext* context, const v1::WatchEventsRequest* request) {
  // A reactor that only says no.
  class Refusal final : public grpc::ServerWriteReactor<v1::Event> {
   public:
    explicit Refusal(grpc::Status status) { Finish(std::move(status)); }
    void OnDone() override { delete this; }
  };
  const Entry entry = enter(context, Rpc::kWatchEvents);
  if (!entry) return new Refusal(entry.refusal);
  const auto job = look_up(request->job(), *entry, Rpc::kWatchEvents);
  if (!job.ok()) return new Refusal(to_grpc(job.status()));
  return new EventWatcher(feed_, context, *job, Seq{request->after_seq()}, request->follow());
}

grpc::ServerUnaryReactor* ControllerService::Why(grpc::CallbackServerContext* context,
                                                 const v1::WhyRequest* request,
                                                 v1::WhyResponse* response) {
  const Entry entry = enter(context, Rpc::kWhy);
  if (!entry) return reply(context, entry.refusal);
  // The history may be long: read here and not on the owner thread.
  const auto job = look_up(request->job(), *entry, Rpc::kWhy);
  if (!job.ok()) return reply(context, to_grpc(job.status()));
  const auto history = feed_.history(*job);
  if (!history.ok()) return reply(context, to_grpc(to_absl(history.error())));
  std::vector<core::LogEntry> log;
  std::map<Seq, int64_t> wall_ms;
  for (const StoredEntry& stored : *history) {
    log.push_back(stored.entry);
    wall_ms[stored.entry.seq] = stored.wall_ms;
  }
  const auto chain = core::explain(log, *job);
  for (const core::LogEntry& entry : chain) {
    fill(StoredEntry{0, wall_ms[entry.seq], entry}, *response->add_chain());
  }
  response->set_summary(core::summarize(chain));
  return reply(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* ControllerService::ListNodes(grpc::CallbackServerContext* context,
                                                       const v1::ListNodesRequest* request,
                                                       v1::ListNodesResponse* response) {
  const Entry entry = enter(context, Rpc::kListNodes);
  if (!entry) return reply(context, entry.refusal);
  return answer(context, Rpc::kListNodes, *entry,
                [this, request, response, uid = entry->acts_for](const core::State& state) {
                  JobId only;
                  if (!request->job().empty()) {
                    const auto job = find_job(state, request->job(), uid);
                    if (!job.ok()) return to_grpc(job.status());
                    only = *job;
                  }
                  for (const auto& [id, job] : state.jobs) {
                    if ((only != JobId{} && id != only) || !may_see(uid, job)) continue;
                    const JobProgress progress = progress_.of(id);
                    for (auto it = state.nodes.lower_bound({id, ""});
                         it != state.nodes.end() && it->first.job == id; ++it) {
                      fill(make_node_view(state, it->second, progress), id.value,
                           *response->add_nodes());
                    }
                  }
                  return grpc::Status::OK;
                });
}

grpc::ServerUnaryReactor* ControllerService::OpenPage(grpc::CallbackServerContext* context,
                                                      const v1::OpenPageRequest* request,
                                                      v1::OpenPageResponse* response) {
  const Entry entry = enter(context, Rpc::kOpenPage);
  if (!entry) return reply(context, entry.refusal);
  std::string first;
  JobId id;
  if (!request->job().empty()) {
    const auto job = look_up(request->job(), *entry, Rpc::kOpenPage);
    if (!job.ok()) return reply(context, to_grpc(job.status()));
    id = *job;
    first = "&job=" + to_string(id);
  }
  const auto url = make_page_link_(entry->acts_for);
  const grpc::Status status = url.ok() ? grpc::Status::OK : to_grpc(to_absl(url.error()));
  gate_.ended(*entry, Rpc::kOpenPage, id.value, "", status);
  if (!status.ok()) return reply(context, status);
  response->set_url(*url + first);
  response->set_node(identity_.node);
  return reply(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* ControllerService::GetVersion(grpc::CallbackServerContext* context,
                                                        const v1::GetVersionRequest*,
                                                        v1::GetVersionResponse* response) {
  const Entry entry = enter(context, Rpc::kGetVersion);
  if (!entry) return reply(context, entry.refusal);
  response->set_version(identity_.version);
  response->set_pid(static_cast<uint64_t>(::getpid()));
  response->set_node(identity_.node);
  response->set_metrics(identity_.metrics);
  return reply(context, grpc::Status::OK);
}

}  // namespace hpctl
