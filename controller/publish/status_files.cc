// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/status_files.h"

#include <fcntl.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "common/base/bounded_json.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "common/job/job_spec_json.h"
#include "common/job/time_account.h"
#include "common/job/time_spent_json.h"

namespace hpctl {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StragglerView, node, rank, slowdown, evidence)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StandbyView, wanted, ready, loading, memory_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(JobMargins, max_restarts, window_ms,
                                                recent_restarts, hour_restarts, spares_wanted,
                                                spares_left, quarantined, slow, still_ms,
                                                recovering_ms, requeue_refusal, lemons, storage_ms,
                                                failed_saves, mirror_behind_ms, since_restart_ms,
                                                hang_warning)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(MirrorView, dir, step, behind_ms, problem)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(WorkerView, rank, node, pid, generation, state,
                                                phase, step)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(FaultCount, kind, node, count)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LossHistogram, counts, sum)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LossCounts, faults, recovery, detection,
                                                until_lost_ms, until_notice_ms, until_fault)

static void to_json(nlohmann::json& j, const NodeView& v) {
  j = {{"name", v.name},           {"role", v.role},
       {"state", v.state},         {"instance_id", v.instance_id},
       {"boot_id", v.boot_id},     {"holder_pid", v.holder_pid},
       {"agent_pid", v.agent_pid}, {"note", v.note}};
  if (v.standbys) j["standbys"] = *v.standbys;
}
static void from_json(const nlohmann::json& j, NodeView& v) {
  v.name = j.value("name", "");
  v.role = j.value("role", "");
  v.state = j.value("state", "");
  v.instance_id = j.value("instance_id", "");
  v.boot_id = j.value("boot_id", "");
  v.holder_pid = j.value("holder_pid", uint64_t{0});
  v.agent_pid = j.value("agent_pid", uint64_t{0});
  v.note = j.value("note", "");
  if (const auto standbys = j.find("standbys"); standbys != j.end()) {
    v.standbys = standbys->get<StandbyView>();
  }
}

namespace {

using nlohmann::json;

constexpr size_t kMaxStatusFileBytes = 256U << 20;

// Text that came from a worker need not be UTF-8.
std::string dump(const json& document) { return json_text(document); }

void append(std::string& text, const char* key, uint64_t value) {
  text.append(",\"").append(key).append("\":").append(std::to_string(value));
}

void append(std::string& text, const char* key, const std::string& value) {
  text.append(",\"").append(key).append("\":").append(dump(value));
}

// By hand: a job may have very many, and this is done once a second. Ranks of one node stand
// together, in one phase. Keys in the order in which nlohmann::json has them.
std::string to_json_text(const std::vector<WorkerView>& workers) {
  std::string text = "[";
  std::string where;
  std::string state;
  const WorkerView* before = nullptr;
  for (const WorkerView& worker : workers) {
    const bool is_first = before == nullptr;
    if (is_first || before->node != worker.node || before->phase != worker.phase) {
      where.clear();
      append(where, "node", worker.node);
      append(where, "phase", worker.phase);
    }
    if (is_first || before->state != worker.state) {
      state.clear();
      append(state, "state", worker.state);
    }
    text.append(is_first ? "{" : ",{").append("\"generation\":");
    text.append(std::to_string(worker.generation)).append(where);
    append(text, "pid", worker.pid);
    text.append(",\"rank\":").append(std::to_string(worker.rank)).append(state);
    append(text, "step", worker.step);
    text += '}';
    before = &worker;
  }
  return text + "]";
}

// Another release may have other buckets. Its counts are not worth the rest of the file.
LossCounts losses_in(const json& document) {
  try {
    LossCounts losses = document.value("losses", LossCounts{});
    if (losses.faults.size() > kMostFaultCounts) losses.faults.resize(kMostFaultCounts);
    return losses;
  } catch (const json::exception&) {
    return {};
  }
}

}  // namespace

JobSummary summarize(const JobView& view, WallTime taken_at) {
  JobSummary summary;
  summary.job = JobId{view.job};
  summary.name = view.name;
  summary.state = view.state;
  summary.taken_at = taken_at;
  summary.owner = view.owner;
  summary.generation = view.generation;
  summary.step = view.step;
  summary.total_steps = view.total_steps;
  summary.tokens_per_second = view.tokens_per_second;
  summary.step_ms = view.step_ms;
  summary.restarts = view.restarts;
  summary.faults = view.faults;
  for (const NodeView& node : view.nodes) {
    if (node.role != "lost") summary.nodes.push_back(node.name);
  }
  summary.ranks = static_cast<uint32_t>(view.workers.size());
  summary.submitted_at = view.submitted_at;
  summary.ended_at = view.ended_at;
  summary.spent = view.spent;
  summary.reason = view.reason;
  summary.last_fault = view.last_fault;
  summary.queue_remedy = view.queue_remedy;
  summary.margins = view.margins;
  return summary;
}

TimeAccount account_of(const JobView& view, WallTime now) {
  const WallTime end = view.ended_at.is_known() ? view.ended_at : now;
  const bool tells_steps = view.total_steps > 0 || view.step > 0 || view.furthest_step > 0;
  return account_of(view.spent, elapsed_ms(view.submitted_at, end).value_or(0), tells_steps);
}

JobSnapshot snapshot_of(const JobView& view, WallTime taken_at) {
  JobSnapshot snapshot;
  snapshot.summary = summarize(view, taken_at);
  snapshot.loss = view.loss;
  for (const WorkerView& worker : view.workers) {
    if (worker.state != "running" || worker.generation == 0) continue;
    if (worker.generation >= view.generation) continue;
    snapshot.orphans.push_back({worker.rank, worker.node, worker.generation});
  }
  return snapshot;
}

std::string to_json_text(const JobView& view) {
  json document = {{"job", view.job},
                   {"name", view.name},
                   {"state", view.state},
                   {"generation", view.generation},
                   {"step", view.step},
                   {"loss", nullptr},
                   {"restarts", view.restarts},
                   {"controller", {{"pid", view.controller_pid}, {"node", view.controller_node}}},
                   {"nodes", view.nodes},
                   {"reason", view.reason},
                   {"total_steps", view.total_steps},
                   {"tokens_per_second", view.tokens_per_second},
                   {"mfu", view.mfu},
                   {"checkpoint_step", view.checkpoint_step},
                   {"snapshot_step", view.snapshot_step},
                   {"stragglers", view.stragglers},
                   {"checkpoint_dir", view.checkpoint_dir},
                   {"submitted_wall_ms", view.submitted_at.unix_ms()},
                   {"ended_wall_ms", view.ended_at.unix_ms()},
                   {"lost_ms", view.lost_ms},
                   {"spent", view.spent},
                   {"faults", view.faults},
                   {"owner", view.owner},
                   {"step_ms", view.step_ms},
                   {"last_fault", view.last_fault}};
  if (!view.job_uuid.empty()) document["job_uuid"] = view.job_uuid;
  if (!view.mirror.dir.empty()) document["mirror"] = view.mirror;
  if (!view.chosen.values.empty()) document["chosen"] = view.chosen;
  if (view.margins) document["margins"] = *view.margins;
  if (view.counted_at.is_known()) {
    document["furthest_step"] = view.furthest_step;
    document["interrupted"] = view.interrupted;
    document["counted_wall_ms"] = view.counted_at.unix_ms();
    document["told_waits"] = view.told_waits;
  }
  if (view.losses.is_recorded()) document["losses"] = view.losses;
  if (std::isfinite(view.loss)) document["loss"] = view.loss;
  std::string text = dump(document);
  text.back() = ',';
  return text + "\"workers\":" + to_json_text(view.workers) + "}";
}

Result<JobView> job_view_from_json(const std::string& text) {
  json document;
  try {
    document = parse_json(text);
    JobView view;
    document.at("job").get_to(view.job);
    document.at("name").get_to(view.name);
    document.at("state").get_to(view.state);
    view.generation = document.value("generation", uint64_t{0});
    view.step = document.value("step", uint64_t{0});
    if (const auto loss = document.find("loss"); loss != document.end() && loss->is_number()) {
      view.loss = loss->get<double>();
    }
    view.restarts = document.value("restarts", int64_t{0});
    if (const auto controller = document.find("controller"); controller != document.end()) {
      view.controller_pid = controller->value("pid", uint64_t{0});
      view.controller_node = controller->value("node", "");
    }
    view.nodes = document.value("nodes", std::vector<NodeView>{});
    view.workers = document.value("workers", std::vector<WorkerView>{});
    view.reason = document.value("reason", "");
    view.total_steps = document.value("total_steps", uint64_t{0});
    view.tokens_per_second = document.value("tokens_per_second", 0.0);
    view.mfu = document.value("mfu", 0.0);
    view.checkpoint_step = document.value("checkpoint_step", uint64_t{0});
    view.snapshot_step = document.value("snapshot_step", uint64_t{0});
    view.stragglers = document.value("stragglers", std::vector<StragglerView>{});
    view.checkpoint_dir = document.value("checkpoint_dir", "");
    view.mirror = document.value("mirror", MirrorView{});
    view.job_uuid = document.value("job_uuid", "");
    view.submitted_at = WallTime(document.value("submitted_wall_ms", int64_t{0}));
    view.ended_at = WallTime(document.value("ended_wall_ms", int64_t{0}));
    view.lost_ms = document.value("lost_ms", int64_t{0});
    view.spent = document.value("spent", TimeSpent{});
    view.faults = document.value("faults", int32_t{0});
    view.owner = document.value("owner", "");
    view.step_ms = document.value("step_ms", 0.0);
    view.last_fault = document.value("last_fault", "");
    view.chosen = document.value("chosen", ChosenValues{});
    if (const auto margins = document.find("margins"); margins != document.end()) {
      view.margins = margins->get<JobMargins>();
    }
    view.furthest_step = document.value("furthest_step", uint64_t{0});
    view.interrupted = document.value("interrupted", false);
    view.counted_at = WallTime(document.value("counted_wall_ms", int64_t{0}));
    view.told_waits = document.value("told_waits", StepWaits{});
    view.losses = losses_in(document);
    return view;
  } catch (const json::exception& e) {
    return Error{ErrorCode::kDataLoss, "not a job status: " + problem_in(document, e)};
  }
}

std::string to_json_text(const EventView& event) {
  return dump(json{{"seq", event.seq},
                   {"time", format_wall_ms(event.wall_ms)},
                   {"type", event.type},
                   {"job", event.job},
                   {"generation", event.generation},
                   {"node", event.node},
                   {"rank", event.rank},
                   {"cause", event.cause},
                   {"because", event.because},
                   {"step", event.step}});
}

Result<EventView> event_view_from_json(const std::string& text) {
  json document;
  try {
    document = parse_json(text);
    EventView event;
    document.at("seq").get_to(event.seq);
    document.at("type").get_to(event.type);
    event.wall_ms = parse_wall_ms(document.value("time", ""));
    event.job = document.value("job", uint64_t{0});
    event.generation = document.value("generation", uint64_t{0});
    event.node = document.value("node", "");
    event.rank = document.value("rank", int32_t{-1});
    event.cause = document.value("cause", "");
    event.because = document.value("because", uint64_t{0});
    event.step = document.value("step", uint64_t{0});
    return event;
  } catch (const json::exception& e) {
    return Error{ErrorCode::kDataLoss, "not an event: " + problem_in(document, e)};
  }
}

Result<bool> write_status(const HomePaths& paths, const JobView& view, const IsOurs& is_ours) {
  return replace_fenced(paths.job_status(JobId{view.job}), to_json_text(view) + "\n", is_ours);
}

Result<JobView> read_status(const HomePaths& paths, JobId job) {
  const std::string path = paths.job_status(job);
  HP_TRY_ASSIGN(const std::string text, read_file(path, kMaxStatusFileBytes));
  auto view = job_view_from_json(text);
  if (!view.ok()) return Error{view.error().code, path + ": " + view.error().message};
  return view;
}

Outcome append_events(const std::string& path, const std::vector<EventView>& events) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid()) return errno_error("cannot open " + path);
  std::string lines;
  for (const EventView& event : events) lines += to_json_text(event) + "\n";
  return write_all(fd.get(), lines, path);
}

Result<std::vector<EventView>> read_events(const std::string& path) {
  std::vector<EventView> events;
  HP_TRY_ASSIGN(const auto read, read_file_if_there(path, kMaxStatusFileBytes));
  if (!read) return events;
  const std::string& text = *read;
  std::set<std::tuple<uint64_t, std::string, std::string, int32_t, std::string>> seen;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    auto event = event_view_from_json(text.substr(begin, end - begin));
    begin = end + 1;
    if (!event.ok()) continue;  // torn by a crash, then continued by the next controller
    if (seen.emplace(event->seq, event->type, event->node, event->rank, event->cause).second) {
      events.push_back(std::move(*event));
    }
  }
  return events;
}

Result<std::vector<JobId>> jobs_with_status_files(const HomePaths& paths) {
  std::vector<JobId> jobs;
  const std::string directory = paths.jobs();
  HP_TRY_ASSIGN(const auto names, list_directory_if_there(directory));
  for (const std::string& name : names) {
    if (name.empty() || name.size() > 18 ||
        name.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    const JobId job{std::stoull(name)};
    HP_TRY_ASSIGN(const bool has_status, path_exists(paths.job_status(job)));
    if (has_status) jobs.push_back(job);
  }
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

}  // namespace hpctl
