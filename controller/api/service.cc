// SPDX-License-Identifier: Apache-2.0
#include "controller/api/service.h"

#include <unistd.h>

#include <algorithm>
#include <future>
#include <map>

#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/rpc/job_summary_wire.h"
#include "common/rpc/status.h"
#include "controller/api/event_watcher.h"
#include "controller/api/job_lookup.h"
#include "controller/core/explain.h"
#include "controller/publish/job_view.h"

namespace hpctl {
namespace {

constexpr size_t kMaxReasonBytes = 512;

const grpc::Status& stopping() {
  static const grpc::Status status(grpc::StatusCode::UNAVAILABLE, "the controller is stopping");
  return status;
}

void finish(grpc::ServerUnaryReactor* reactor, grpc::Status status) {
  HP_FAILPOINT("controller.rpc_answer.before");
  reactor->Finish(std::move(status));
  HP_FAILPOINT("controller.rpc_answer.after");
}

}  // namespace

ControllerService::ControllerService(const HomePaths& paths, ControllerIdentity identity,
                                     const Authenticator& authenticator, OwnerLoop& loop,
                                     EventFeed& feed, ProgressTable& progress, AgentLink& agents,
                                     DamageCheckpoint damage, MakePageLink make_page_link,
                                     Listed listed)
    : paths_(paths),
      identity_(std::move(identity)),
      authenticator_(authenticator),
      loop_(loop),
      feed_(feed),
      progress_(progress),
      agents_(agents),
      damage_(std::move(damage)),
      make_page_link_(std::move(make_page_link)),
      listed_(std::move(listed)) {}

std::optional<uint32_t> ControllerService::caller(grpc::CallbackServerContext* context) {
  ++calls_;
  return authenticator_.of(*context);
}

grpc::ServerUnaryReactor* ControllerService::reply(grpc::CallbackServerContext* context,
                                                   grpc::Status status) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(std::move(status));
  return reactor;
}

absl::StatusOr<JobId> ControllerService::look_up(const std::string& text, uint32_t uid) {
  std::promise<absl::StatusOr<JobId>> found;
  loop_.ask([&](const core::State* state) {
    found.set_value(state == nullptr
                        ? absl::StatusOr<JobId>(absl::UnavailableError(stopping().error_message()))
                        : find_job(*state, text, uid));
  });
  return found.get_future().get();
}

grpc::ServerUnaryReactor* ControllerService::answer(grpc::CallbackServerContext* context,
                                                    Answer answer) {
  auto* reactor = context->DefaultReactor();
  loop_.ask([reactor, answer = std::move(answer)](const core::State* state) {
    finish(reactor, state == nullptr ? stopping() : answer(*state));
  });
  return reactor;
}

grpc::ServerUnaryReactor* ControllerService::Submit(grpc::CallbackServerContext* context,
                                                    const v1::SubmitRequest* request,
                                                    v1::SubmitResponse* response) {
  const auto uid = caller(context);
  if (!uid) return reply(context, unauthenticated());
  if (!identity_.accepts_jobs) {
    return reply(context, {grpc::StatusCode::FAILED_PRECONDITION,
                           "this controller has one job and takes no other; see hpctl submit"});
  }
  auto spec = job_spec_from_json(request->spec_json());
  if (!spec.ok()) return reply(context, to_grpc(to_absl(spec.error())));
  auto* reactor = context->DefaultReactor();
  HP_FAILPOINT("controller.submit.received");
  loop_.post(
      [this, spec = std::move(*spec), uid = *uid,
       key = request->submit_key()](const core::State& state) mutable {
        if (spec.checkpoint.dir.empty()) {
          // The core gives the job the next number.
          spec.checkpoint.dir = paths_.default_checkpoints(core::next_local_id(state));
        }
        return std::optional<core::EventBody>(core::JobSubmitted{std::move(spec), uid, key});
      },
      [reactor, response](const core::StepResult* result, const core::State*) {
        if (result == nullptr) {
          finish(reactor, stopping());
        } else if (!result->submitted) {
          finish(reactor, {grpc::StatusCode::INVALID_ARGUMENT, result->refusal});
        } else {
          response->set_job(result->submitted->value);
          finish(reactor, grpc::Status::OK);
        }
      });
  return reactor;
}

grpc::ServerUnaryReactor* ControllerService::GetJob(grpc::CallbackServerContext* context,
                                                    const v1::GetJobRequest* request,
                                                    v1::JobStatus* response) {
  const auto uid = caller(context);
  if (!uid) return reply(context, unauthenticated());
  return answer(context, [this, request, response, uid = *uid](const core::State& state) {
    const auto job = find_job(state, request->job(), uid);
    if (!job.ok()) return to_grpc(job.status());
    fill(make_job_view(state, *job, progress_.of(*job), identity_.node, loop_.now_ms()), *response);
    return grpc::Status::OK;
  });
}

grpc::ServerUnaryReactor* ControllerService::ListJobs(grpc::CallbackServerContext* context,
                                                      const v1::ListJobsRequest*,
                                                      v1::ListJobsResponse* response) {
  const auto uid = caller(context);
  if (!uid) return reply(context, unauthenticated());
  return answer(context, [this, response, uid = *uid](const core::State& state) {
    const int64_t wall_ms = SystemClock().wall_ms();
    for (const auto& [id, job] : state.jobs) {
      if (!may_see(uid, job)) continue;
      const JobView view =
          make_job_view(state, id, progress_.of(id), identity_.node, loop_.now_ms());
      fill(summarize(view, wall_ms), *response->add_jobs());
    }
    listed_();
    return grpc::Status::OK;
  });
}

grpc::ServerUnaryReactor* ControllerService::order(grpc::CallbackServerContext* context,
                                                   const std::string& job, MakeOrder make,
                                                   AnswerOrder answer) {
  const auto uid = caller(context);
  if (!uid) return reply(context, unauthenticated());
  auto* reactor = context->DefaultReactor();
  const auto found = std::make_shared<absl::StatusOr<JobId>>(absl::NotFoundError(""));
  loop_.post(
      [found, uid = *uid, job,
       make = std::move(make)](const core::State& state) -> std::optional<core::EventBody> {
        *found = find_job(state, job, uid);
        if (!found->ok()) return std::nullopt;
        // What its next life is to know has been written down, and it may be the queue's by now.
        if (state.jobs.at(**found).stage == core::PlanStage::kRequeue) {
          *found = absl::UnavailableError("job " + to_string(**found) +
                                          " is being requeued; say it again when it has started");
          return std::nullopt;
        }
        return make(**found, uid);
      },
      [found, reactor, answer = std::move(answer)](const core::StepResult* result,
                                                   const core::State* state) {
        if (state == nullptr) {
          finish(reactor, stopping());
        } else if (!found->ok()) {
          finish(reactor, to_grpc(found->status()));
        } else if (!result->refusal.empty()) {
          finish(reactor, {grpc::StatusCode::FAILED_PRECONDITION, result->refusal});
        } else {
          answer(state->jobs.at(**found), result->log.front());
          finish(reactor, grpc::Status::OK);
        }
      });
  return reactor;
}

grpc::ServerUnaryReactor* ControllerService::Cancel(grpc::CallbackServerContext* context,
                                                    const v1::CancelRequest* request,
                                                    v1::CancelResponse* response) {
  return order(
      context, request->job(),
      [reason = request->reason().substr(0, kMaxReasonBytes), time_limit = request->time_limit()](
          JobId job, uint32_t uid) {
        return core::CancelRequested{job, uid, reason, time_limit};
      },
      [response](const core::Job& job, const core::LogEntry&) {
        response->set_state(core::shown_state(job));
      });
}

grpc::ServerUnaryReactor* ControllerService::QuarantineNode(
    grpc::CallbackServerContext* context, const v1::QuarantineNodeRequest* request,
    v1::QuarantineNodeResponse*) {
  return order(
      context, request->job(),
      [node = request->node(), reason = request->reason().substr(0, kMaxReasonBytes),
       for_ms = std::max<int64_t>(0, request->for_ms())](JobId job, uint32_t uid) {
        return core::QuarantineRequested{job, node, uid, reason, for_ms};
      },
      [](const core::Job&, const core::LogEntry&) {});
}

grpc::ServerUnaryReactor* ControllerService::ReleaseNode(grpc::CallbackServerContext* context,
                                                         const v1::ReleaseNodeRequest* request,
                                                         v1::ReleaseNodeResponse*) {
  return order(
      context, request->job(),
      [node = request->node()](JobId job, uint32_t uid) {
        return core::ReleaseRequested{job, node, uid};
      },
      [](const core::Job&, const core::LogEntry&) {});
}

grpc::ServerUnaryReactor* ControllerService::RecoverNode(grpc::CallbackServerContext* context,
                                                         const v1::RecoverNodeRequest* request,
                                                         v1::RecoverNodeResponse*) {
  return order(
      context, request->job(),
      [node = request->node(), reason = request->reason().substr(0, kMaxReasonBytes),
       reboot = request->reboot()](JobId job, uint32_t uid) {
        return core::RecoveryRequested{job, node, uid, reason, reboot};
      },
      [](const core::Job&, const core::LogEntry&) {});
}

// The event first, so that the history tells of the fault whatever it breaks.
grpc::ServerUnaryReactor* ControllerService::Inject(grpc::CallbackServerContext* context,
                                                    const v1::InjectRequest* request,
                                                    v1::InjectResponse* response) {
  if (!caller(context)) return reply(context, unauthenticated());
  const auto fault = from_word<InjectedFault>(request->fault());
  if (!fault) {
    return reply(context,
                 {grpc::StatusCode::INVALID_ARGUMENT,
                  "this controller knows no such fault, only " + all_words<InjectedFault>()});
  }
  const FaultTarget target = target_of(*fault);
  return order(
      context, request->job(),
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
        if (fault == InjectedFault::kCorruptCheckpoint) damage_(told);
        agents_.inject({job.id, told.node}, order);
        response->set_seq(told.seq.value);
      });
}

grpc::ServerWriteReactor<v1::Event>* ControllerService::WatchEvents(
    grpc::CallbackServerContext* context, const v1::WatchEventsRequest* request) {
  // A reactor that only says no.
  class Refusal final : public grpc::ServerWriteReactor<v1::Event> {
   public:
    explicit Refusal(grpc::Status status) { Finish(std::move(status)); }
    void OnDone() override { delete this; }
  };
  const auto uid = caller(context);
  if (!uid) return new Refusal(unauthenticated());
  const auto job = look_up(request->job(), *uid);
  if (!job.ok()) return new Refusal(to_grpc(job.status()));
  return new EventWatcher(feed_, context, *job, Seq{request->after_seq()}, request->follow());
}

grpc::ServerUnaryReactor* ControllerService::Why(grpc::CallbackServerContext* context,
                                                 const v1::WhyRequest* request,
                                                 v1::WhyResponse* response) {
  const auto uid = caller(context);
  if (!uid) return reply(context, unauthenticated());
  // The history may be long: read here and not on the owner thread.
  const auto job = look_up(request->job(), *uid);
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
  const auto uid = caller(context);
  if (!uid) return reply(context, unauthenticated());
  return answer(context, [this, request, response, uid = *uid](const core::State& state) {
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
        fill(make_node_view(state, it->second, progress), id.value, *response->add_nodes());
      }
    }
    return grpc::Status::OK;
  });
}

grpc::ServerUnaryReactor* ControllerService::OpenPage(grpc::CallbackServerContext* context,
                                                      const v1::OpenPageRequest* request,
                                                      v1::OpenPageResponse* response) {
  const auto uid = caller(context);
  if (!uid) return reply(context, unauthenticated());
  std::string first;
  if (!request->job().empty()) {
    const auto job = look_up(request->job(), *uid);
    if (!job.ok()) return reply(context, to_grpc(job.status()));
    first = "&job=" + to_string(*job);
  }
  const auto url = make_page_link_(*uid);
  if (!url.ok()) return reply(context, to_grpc(to_absl(url.error())));
  response->set_url(*url + first);
  response->set_node(identity_.node);
  return reply(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* ControllerService::GetVersion(grpc::CallbackServerContext* context,
                                                        const v1::GetVersionRequest*,
                                                        v1::GetVersionResponse* response) {
  if (!caller(context)) return reply(context, unauthenticated());
  response->set_version(identity_.version);
  response->set_pid(static_cast<uint64_t>(::getpid()));
  response->set_node(identity_.node);
  response->set_metrics(identity_.metrics);
  return reply(context, grpc::Status::OK);
}

}  // namespace hpctl
