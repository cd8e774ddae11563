// SPDX-License-Identifier: Apache-2.0
#include "controller/page/page_answers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <future>
#include <map>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/job/time_account.h"
#include "common/jobfile/job_yaml.h"
#include "common/rpc/status.h"
#include "controller/api/job_lookup.h"
#include "controller/core/explain.h"
#include "controller/page/page_rows.h"
#include "controller/page/page_timeline.h"
#include "controller/publish/job_view.h"

namespace hpctl {
namespace {

using nlohmann::json;

json page_summary(const JobView& view, const std::vector<Finding>& found, int64_t wall_ms) {
  json row = page_job_row(summarize(view, WallTime(wall_ms)), found);
  row["loss"] = number_or_null(view.loss);
  row["nodes"] = view.nodes.size();  // those that it has lost, too
  return row;
}

// "" = the default. kInvalidArgument: `what` is no whole number.
Result<uint64_t> count_in(const std::string& text, const char* what, uint64_t otherwise) {
  if (text.empty()) return otherwise;
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && read == end) return value;
  return Error{ErrorCode::kInvalidArgument, std::string(what) + "= wants a whole number"};
}

double rounded_ms(uint64_t ns) { return std::round(static_cast<double>(ns) / 1e5) / 10; }

// [rank, node, state, phase, step, ms of its last step, ms of that in which it waited for others:
// that were neither its passes nor its data. Ranks also wait for each other where sums are formed
// at the end of a step, which is not in communication_wait_ns; the optimizer is in it, alike for
// all.]
json row_of(const WorkerView& worker, const JobProgress& progress) {
  double step_ms = 0;
  double wait_ms = 0;
  const auto found = progress.ranks.find(worker.rank);
  if (found != progress.ranks.end() && found->second.report.generation == worker.generation) {
    const uint64_t step_ns = found->second.report.step_ns;
    step_ms = rounded_ms(step_ns);
    const auto& figures = found->second.report.figures;
    if (figures && figures->compute_ns > 0) {
      wait_ms =
          rounded_ms(step_ns - std::min(step_ns, figures->compute_ns + figures->data_wait_ns));
    }
  }
  return {worker.rank, worker.node, worker.state, worker.phase, worker.step, step_ms, wait_ms};
}

// [wanted, ready, loading, bytes]
json row_of(const std::optional<StandbyView>& standbys) {
  if (!standbys) return nullptr;
  return {standbys->wanted, standbys->ready, standbys->loading, standbys->memory_bytes};
}

// The own part of each rank's last step in ms; 0 = not known. Ranks of a job are 0 to n-1.
std::vector<float> own_times(const JobView& view, const JobProgress& progress) {
  std::vector<float> times(view.workers.size());
  for (const WorkerView& worker : view.workers) {
    const auto found = progress.ranks.find(worker.rank);
    if (found == progress.ranks.end() || worker.rank < 0) continue;
    const RankReport& report = found->second.report;
    if (report.generation != worker.generation) continue;
    const auto& figures = report.figures;
    const uint64_t own_ns = figures && figures->compute_ns > 0
                                ? figures->compute_ns + figures->data_wait_ns
                                : report.step_ns;
    const auto index = static_cast<size_t>(worker.rank);
    if (index < times.size()) times[index] = static_cast<float>(rounded_ms(own_ns));
  }
  return times;
}

json timeline_rows(const PageTimeline& timeline) {
  json segments = json::array();
  for (const TimelineSegment& segment : timeline.segments) {
    segments.push_back({segment.part, segment.from_ms, segment.cause, segment.regain_step});
  }
  json marks = json::array();
  for (const TimelineMark& mark : timeline.marks) {
    marks.push_back({mark.kind, mark.at_ms, mark.step, mark.text});
  }
  return {{"segments", std::move(segments)}, {"marks", std::move(marks)}};
}

Result<JobId> find_for(const core::State& state, const std::string& job, uint32_t uid) {
  const auto id = find_job(state, job, uid);
  if (id.ok()) return *id;
  if (absl::IsPermissionDenied(id.status())) {  // no word about what others have
    return Error{ErrorCode::kNotFound, "there is no job " + job};
  }
  return Error{error_code(id.status()), message_of(id.status())};
}

json plots_of(const std::vector<PageSample>& samples) {
  json plots = {{"at_ms", json::array()},
                {"step", json::array()},
                {"loss", json::array()},
                {"tokens_per_second", json::array()},
                {"goodput", json::array()}};
  for (const PageSample& sample : samples) {
    plots["at_ms"].push_back(sample.wall_ms);
    plots["step"].push_back(sample.step);
    plots["loss"].push_back(number_or_null(sample.loss));
    plots["tokens_per_second"].push_back(sample.tokens_per_second);
    plots["goodput"].push_back(number_or_null(sample.goodput));
  }
  return plots;
}

json page_event(const EventView& event) {
  return {{"seq", event.seq},
          {"at_ms", event.wall_ms},
          {"type", event.type},
          {"node", event.node},
          {"generation", event.generation},
          {"rank", event.rank},
          {"step", event.step},
          {"cause", event.cause}};
}

}  // namespace

template <typename T>
Result<T> PageAnswers::ask(Look<T> look) {
  // Shared: who waits may give up before the owner thread comes to it.
  const auto answer = std::make_shared<std::promise<Result<T>>>();
  auto answered = answer->get_future();
  loop_.ask([answer, look = std::move(look)](const core::State* state) {
    answer->set_value(state == nullptr
                          ? Result<T>(Error{ErrorCode::kUnavailable, "the controller is stopping"})
                          : look(*state));
  });
  if (answered.wait_for(kPatience) != std::future_status::ready) {
    return Error{ErrorCode::kUnavailable, "the controller is busy"};
  }
  return answered.get();
}

Result<JobId> PageAnswers::find(uint32_t uid, const std::string& job) {
  return ask<JobId>([uid, job](const core::State& state) { return find_for(state, job, uid); });
}

std::vector<Finding> PageAnswers::found_of(JobId job) const {
  const auto found = found_.find(job);
  return found == found_.end() ? std::vector<Finding>{} : found->second;
}

Result<std::string> PageAnswers::answer(uint32_t uid, const PageServer::Request& request) {
  if (request.path == "/api/jobs") return jobs(uid);
  if (request.id.empty()) return Error{ErrorCode::kInvalidArgument, "which job? id=N"};
  if (request.path == "/api/job") return job(uid, request.id);
  if (request.path == "/api/series") return series(uid, request);
  if (request.path == "/api/log") return log(uid, request);
  if (request.path == "/api/heat") return heat(uid, request.id);
  if (request.path == "/api/files") return files(uid, request.id);
  HP_TRY_ASSIGN(const uint64_t after, count_in(request.after, "after", 0));
  return events(uid, request.id, after);
}

Result<std::string> PageAnswers::jobs(uint32_t uid) {
  struct Row {
    JobView view;
    std::vector<Finding> found;
  };
  const auto look = [this, uid](const core::State& state) -> Result<std::vector<Row>> {
    std::vector<Row> rows;
    for (const auto& [id, job] : state.jobs) {
      if (!may_see(uid, job)) continue;
      rows.push_back(
          {make_job_view(state, id, progress_.of(id), node_, loop_.now_ms()), found_of(id)});
    }
    return rows;
  };
  HP_TRY_ASSIGN(const auto rows, ask<std::vector<Row>>(look));
  const int64_t wall_ms = SystemClock().wall_ms();
  json jobs = json::array();
  for (const Row& row : rows) jobs.push_back(page_summary(row.view, row.found, wall_ms));
  return page_json_text(
      {{"now_ms", wall_ms}, {"node", node_}, {"version", version_}, {"jobs", std::move(jobs)}});
}

Result<std::string> PageAnswers::job(uint32_t uid, const std::string& job) {
  struct Picture {
    JobView view;
    JobProgress progress;
    std::vector<PageSample> samples;
    std::vector<Finding> found;
    std::vector<LemonScore> lemons;
  };
  const auto look = [this, uid, job](const core::State& state) -> Result<Picture> {
    HP_TRY_ASSIGN(const JobId id, find_for(state, job, uid));
    JobProgress progress = progress_.of(id);
    JobView view = make_job_view(state, id, progress, node_, loop_.now_ms());
    // The built-in trainer writes metrics.jsonl.
    std::vector<PageSample> samples;
    if (!state.jobs.at(id).spec.train) samples = history_.of(id);
    return Picture{std::move(view), std::move(progress), std::move(samples), found_of(id), lemons_};
  };
  HP_TRY_ASSIGN(const Picture picture, ask<Picture>(look));
  const JobView& view = picture.view;
  const int64_t wall_ms = SystemClock().wall_ms();
  json answer = page_summary(view, picture.found, wall_ms);
  answer["now_ms"] = wall_ms;
  answer["checkpoint_step"] = view.checkpoint_step;
  answer["snapshot_step"] = view.snapshot_step;
  answer["mfu"] = view.mfu;
  answer["time"] = page_time_rows(account_of(view, WallTime(wall_ms)));
  for (const char* list : {"node_rows", "rank_rows", "stragglers"}) answer[list] = json::array();
  for (const NodeView& node : view.nodes) {
    answer["node_rows"].push_back(
        {node.name, node.role, node.state, node.note, row_of(node.standbys),
         page_lemon_row(find_lemon_score(picture.lemons, node.name, node.instance_id))});
  }
  for (const WorkerView& worker : view.workers) {
    answer["rank_rows"].push_back(row_of(worker, picture.progress));
  }
  for (const StragglerView& straggler : view.stragglers) {
    answer["stragglers"].push_back(straggler.node + ": " + straggler.evidence);
  }
  if (!picture.samples.empty()) answer["plots"] = plots_of(picture.samples);
  return page_json_text(answer);
}

// The history may be long: it is read here, and not on the owner thread.
Result<std::string> PageAnswers::events(uint32_t uid, const std::string& job, uint64_t after_seq) {
  HP_TRY_ASSIGN(const JobId id, find(uid, job));
  HP_TRY_ASSIGN(const auto history, feed_.history(id));
  std::vector<core::LogEntry> log;
  std::map<Seq, int64_t> wall_ms;
  json events = json::array();
  for (const StoredEntry& stored : history) {
    log.push_back(stored.entry);
    wall_ms[stored.entry.seq] = stored.wall_ms;
  }
  const auto most = static_cast<size_t>(kMostEvents);
  for (size_t i = history.size() > most ? history.size() - most : 0; i < history.size(); ++i) {
    if (history[i].entry.seq.value <= after_seq) continue;
    events.push_back(page_event(make_event_view(history[i])));
  }
  const auto chain = core::explain(log, id);
  json why = json::array();
  for (const core::LogEntry& entry : chain) {
    why.push_back(page_event(make_event_view(StoredEntry{0, wall_ms[entry.seq], entry})));
  }
  return page_json_text(json{{"events", std::move(events)},
                             {"left_out", history.size() > most ? history.size() - most : 0},
                             {"summary", core::summarize(chain)},
                             {"why", std::move(why)},
                             {"timeline", timeline_rows(timeline_of(history))}});
}

Result<std::string> PageAnswers::series(uint32_t uid, const PageServer::Request& request) {
  PageFiles::Span span;
  HP_TRY_ASSIGN(span.from, count_in(request.from, "from", span.from));
  HP_TRY_ASSIGN(span.to, count_in(request.to, "to", span.to));
  HP_TRY_ASSIGN(span.points, count_in(request.points, "points", span.points));
  HP_TRY_ASSIGN(const JobId id, find(uid, request.id));
  return files_.series(id, span);
}

Result<std::string> PageAnswers::log(uint32_t uid, const PageServer::Request& request) {
  constexpr uint64_t kUsualLines = 100;
  constexpr uint64_t kMostRank = 999'999'999;
  HP_TRY_ASSIGN(const uint64_t rank, count_in(request.rank, "rank", 0));
  HP_TRY_ASSIGN(const uint64_t lines, count_in(request.lines, "lines", kUsualLines));
  if (rank > kMostRank) return Error{ErrorCode::kNotFound, "there is no such rank"};
  HP_TRY_ASSIGN(const JobId id, find(uid, request.id));
  return files_.log_tail(id, Rank{static_cast<int32_t>(rank)}, lines);
}

Result<std::string> PageAnswers::heat(uint32_t uid, const std::string& job) {
  const auto look = [this, uid,
                     job](const core::State& state) -> Result<std::vector<RankTimes::Column>> {
    HP_TRY_ASSIGN(const JobId id, find_for(state, job, uid));
    return rank_times_.of(id);
  };
  HP_TRY_ASSIGN(const auto columns, ask<std::vector<RankTimes::Column>>(look));
  json rows = json::array();
  for (const RankTimes::Column& column : columns) {
    json times = json::array();
    for (const float ms : column.ms) times.push_back(std::round(double{ms} * 10) / 10);
    rows.push_back({column.wall_ms, column.step, column.ranks_per_row, std::move(times)});
  }
  return page_json_text({{"columns", std::move(rows)}});
}

// Values of env.set may be secrets, so that only their names are shown; so is the URL of a webhook.
Result<std::string> PageAnswers::files(uint32_t uid, const std::string& job) {
  using Found = std::pair<JobId, JobSpec>;
  const auto look = [uid, job](const core::State& state) -> Result<Found> {
    HP_TRY_ASSIGN(const JobId id, find_for(state, job, uid));
    return Found{id, state.jobs.at(id).spec};
  };
  HP_TRY_ASSIGN(Found found, ask<Found>(look));
  auto& [id, spec] = found;
  for (auto& [name, value] : spec.env) value = "(not shown)";
  if (!spec.notify.webhook.empty()) spec.notify.webhook = "(not shown)";
  json answer = {{"job_file", to_yaml(spec)}, {"checkpoints", json::array()}, {"problem", ""}};
  const std::string directory = spec.checkpoint.dir;
  if (directory.empty()) return page_json_text(answer);
  const auto listed = files_.checkpoints(id, directory);
  if (listed.ok()) {
    answer.update(parse_json(*listed));
  } else {
    answer["problem"] = listed.error().message;
  }
  return page_json_text(answer);
}

void PageAnswers::sample(const JobView& view, const JobProgress& progress,
                         const std::vector<Finding>& found, const std::vector<LemonScore>& lemons,
                         int64_t wall_ms) {
  lemons_ = lemons;
  if (found.empty()) {
    found_.erase(JobId{view.job});
  } else {
    found_[JobId{view.job}] = found;
  }
  if (view.ended_at.is_known()) {
    history_.end(JobId{view.job});
    rank_times_.end(JobId{view.job});
  }
  if (view.step == 0 || view.state != "RUNNING") return;
  history_.add(JobId{view.job}, {wall_ms, view.step, view.loss, view.tokens_per_second,
                                 goodput_of(account_of(view, WallTime(wall_ms))).value_or(NAN)});
  rank_times_.add(JobId{view.job}, wall_ms, view.step, own_times(view, progress));
}

}  // namespace hpctl
