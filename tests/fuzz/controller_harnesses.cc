// SPDX-License-Identifier: Apache-2.0
// The inputs of a controller: from agents, from its own store, from other controllers and from
// strangers who have a MUNGE credential.
#include <algorithm>

#include "common/rpc/job_summary_wire.h"
#include "controller/agents/agent_report.h"
#include "controller/agents/progress.h"
#include "controller/cluster/identity.h"
#include "controller/cluster/job_row.h"
#include "controller/cluster/service.h"
#include "controller/core/codec.h"
#include "controller/leadership/child_protocol.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/properties.h"
#include "tests/fuzz/scratch.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::fuzz {
namespace {

// ---- agents -------------------------------------------------------------------------------------

// A job of two nodes that trains, and another one.
struct Training {
  core::FakeShell shell;
  JobId job;
  Training() {
    job = shell.submit(core::small_job("demo"));
    shell.submit(core::small_job("other"));
    shell.settle();
    shell.progress(job, 1);
  }
};

// Numbers of a job that never fall.
struct Height {
  uint64_t generation;
  uint64_t directory_generation;
  uint64_t furthest_step;
  explicit Height(const core::Job& job)
      : generation(job.generation.value),
        directory_generation(job.directory_generation.value),
        furthest_step(job.furthest_step) {}
  void require_below(const core::Job& job) const {
    require(job.generation.value >= generation, "a generation that falls");
    require(job.directory_generation.value >= directory_generation,
            "a generation of the directory that falls");
    require(job.furthest_step >= furthest_step, "a furthest step that falls");
  }
};

void feed(core::FakeShell& shell, const core::EventBody& body) {
  std::vector<Height> before;
  for (const auto& [id, job] : shell.state.jobs) before.emplace_back(job);
  core::Event event;
  event.body = body;
  const std::string stored = core::encode(event);
  const auto read = core::decode_event(stored);
  require(read.ok() && core::encode(*read) == stored, "an event that is stored otherwise");
  const core::StepResult result = shell.feed(body);
  for (const core::LogEntry& entry : result.log) {
    require(core::decode_log_entry(core::encode(entry)).ok(), "a line that is not read again");
  }
  size_t i = 0;
  for (const auto& [id, job] : shell.state.jobs) before[i++].require_below(job);
}

void take_heartbeat(ProgressTable& table, JobId job, const v1::AgentMessage& message) {
  table.report(job, message.node(), make_rank_reports(message.heartbeat()), 2000);
  const JobProgress progress = table.of(job);
  require(progress.tokens_per_second >= 0 && progress.step_ms >= 0, "a negative rate");
}

// Messages of one stream behind each other, each after its length in two bytes. What the session
// would refuse ends the stream.
void run_agent_messages(std::string_view input) {
  static const Training begun;
  core::FakeShell shell = begun.shell;
  ProgressTable table;
  table.observe(shell.job(begun.job), shell.now_ms);
  for (int i = 0; i < 8 && input.size() >= 2; ++i) {
    const size_t length = static_cast<uint8_t>(input[0]) | static_cast<uint8_t>(input[1]) << 8;
    input.remove_prefix(2);
    v1::AgentMessage message;
    if (!message.ParseFromString(std::string(input.substr(0, length)))) return;
    input.remove_prefix(std::min(length, input.size()));
    const bool registers = message.has_register_agent();
    const std::string problem =
        registers ? find_registration_problem(message) : find_report_problem(message);
    require_readable(problem, "a refusal");
    if (!problem.empty()) return;
    if (registers) {
      feed(shell, make_registration(message));
      require_readable(probe_address(message.register_agent()), "an address");
    } else if (message.has_heartbeat()) {
      take_heartbeat(table, begun.job, message);
    } else if (const auto event = make_event(message, shell.state)) {
      feed(shell, *event);
    }
  }
  shell.restart();
  shell.settle();
}

v1::AgentMessage from_agent(const core::FakeShell& shell, JobId job) {
  v1::AgentMessage message;
  message.set_job(job.value);
  message.set_node("n1");
  message.set_boot_id(shell.node(job, "n1").boot_id);
  return message;
}

std::vector<std::string> agent_message_seeds() {
  const Training training;
  const auto framed = [](const v1::AgentMessage& message) {
    const std::string bytes = message.SerializeAsString();
    return std::string{static_cast<char>(bytes.size()), static_cast<char>(bytes.size() >> 8)} +
           bytes;
  };
  v1::AgentMessage exited = from_agent(training.shell, training.job);
  const core::Slot& slot = training.shell.slot(training.job, 2);
  exited.mutable_worker_exited()->set_rank(2);
  exited.mutable_worker_exited()->set_generation(slot.generation.value);
  exited.mutable_worker_exited()->set_pid(slot.pid);
  exited.mutable_worker_exited()->set_signal(9);
  exited.mutable_worker_exited()->set_last_step(5);
  exited.mutable_worker_exited()->set_message("Connection closed by peer");
  v1::AgentMessage registered = from_agent(training.shell, training.job);
  registered.mutable_register_agent()->set_generation_seen(1);
  (*registered.mutable_register_agent()->mutable_capabilities())["address"] = "10.0.0.1";
  v1::AgentMessage beat = from_agent(training.shell, training.job);
  v1::WorkerProgress* worker = beat.mutable_heartbeat()->add_workers();
  worker->set_rank(2);
  worker->set_generation(1);
  worker->set_step(7);
  worker->set_step_ns(1'000'000);
  worker->set_tokens(4096);
  v1::AgentMessage committed = from_agent(training.shell, training.job);
  committed.mutable_checkpoint_committed()->set_generation(1);
  committed.mutable_checkpoint_committed()->set_step(4);
  v1::AgentMessage bad = from_agent(training.shell, training.job);
  bad.mutable_bad_step()->set_generation(1);
  bad.mutable_bad_step()->set_number(1);
  bad.mutable_bad_step()->set_step(6);
  bad.mutable_bad_step()->set_verdict(2);
  bad.mutable_bad_step()->set_outcome(3);
  v1::AgentMessage unfit = from_agent(training.shell, training.job);
  unfit.mutable_spare_unfit()->set_reason("a hook failed");
  v1::AgentMessage answered = from_agent(training.shell, training.job);
  answered.mutable_damage_answered()->set_verdict(2);
  v1::AgentMessage bye = from_agent(training.shell, training.job);
  bye.mutable_goodbye();
  return {framed(exited) + framed(committed), framed(registered) + framed(exited),
          framed(beat) + framed(bad),         framed(beat) + framed(beat) + framed(exited),
          framed(unfit) + framed(answered),   framed(bye)};
}

// ---- the store ----------------------------------------------------------------------------------

// A line for each row after its kind: j(ob), n(ode), s(lots), a(ction).
void add_row(core::State& state, std::string_view line) {
  const std::string text(line.substr(std::min<size_t>(line.size(), 1)));
  switch (line.empty() ? '\0' : line[0]) {
    case 'j':
      if (auto job = core::decode_job(text); job.ok()) state.jobs[job->id] = *std::move(job);
      return;
    case 'n':
      if (auto node = core::decode_node(text); node.ok()) state.nodes[node->key] = *std::move(node);
      return;
    case 's':
      if (auto slots = core::decode_slots(text); slots.ok()) {
        for (core::Slot& slot : *slots) state.slots[slot.key] = slot;
      }
      return;
    case 'a':
      if (auto action = core::decode_action(text); action.ok()) {
        state.outbox[action->id] = *std::move(action);
      }
      return;
    default:
      return;
  }
}

// As the owner loads them: a damaged row costs its job, never the controller.
void run_stored_rows(std::string_view input) {
  core::FakeShell shell;
  for (size_t begin = 0; begin < input.size();) {
    const size_t end = std::min(input.find('\n', begin), input.size());
    add_row(shell.state, input.substr(begin, end - begin));
    begin = end + 1;
  }
  core::drop_strays(shell.state);
  core::rebuild_index(shell.state);
  shell.feed(core::ControllerResumed{true});
  shell.settle();
}

std::vector<std::string> stored_row_seeds() {
  Training training;
  training.shell.exit_worker(training.job, 2, 0, 9, 1);
  const core::State& state = training.shell.state;
  std::string rows;
  for (const auto& [id, job] : state.jobs) rows += "j" + core::encode(job) + "\n";
  for (const auto& [key, node] : state.nodes) rows += "n" + core::encode(node) + "\n";
  for (const auto& [id, action] : state.outbox) rows += "a" + core::encode(action) + "\n";
  for (const auto& [id, job] : state.jobs) {
    std::vector<const core::Slot*> slots;
    for (const auto& [key, slot] : state.slots) {
      if (key.job == id) slots.push_back(&slot);
    }
    rows += "s" + core::encode(slots) + "\n";
  }
  return {rows};
}

template <typename Decode>
void require_stored(std::string_view input, const Decode& decode) {
  const auto first = decode(std::string(input));
  if (!first.ok()) return require_explained(first.error());
  const std::string text = core::encode(*first);
  const auto again = decode(text);
  require(again.ok() && core::encode(*again) == text, "a row that is stored otherwise: " + text);
}

void run_row(std::string_view input) {
  require_stored(input, core::decode_job);
  require_stored(input, core::decode_node);
  require_stored(input, core::decode_slot);
  require_stored(input, core::decode_action);
  require_stored(input, core::decode_event);
  require_stored(input, core::decode_log_entry);
}

std::vector<std::string> row_seeds() {
  Training training;
  training.shell.exit_worker(training.job, 2, 0, 9, 1);
  std::vector<std::string> rows;
  rows.push_back(core::encode(training.shell.job(training.job)));
  rows.push_back(core::encode(training.shell.node(training.job, "n1")));
  rows.push_back(core::encode(training.shell.slot(training.job, 2)));
  for (const auto& [id, action] : training.shell.state.outbox) rows.push_back(core::encode(action));
  for (const core::LogEntry& entry : training.shell.log) rows.push_back(core::encode(entry));
  core::Event event;
  event.body = core::WorkerExited{training.job, "n1",  "boot-2", Rank{2}, {1}, 7, 0, 9, 5,
                                  "words",      false, false,    {}};
  rows.push_back(core::encode(event));
  return rows;
}

// ---- the cluster controller ---------------------------------------------------------------------

// What a genuine credential carries.
void run_admission(std::string_view input) {
  v1::Admission admission;
  if (!admission.ParseFromString(std::string(input))) return;
  if (const auto problem = cluster::find_problem(admission)) {
    return require_readable(*problem, "a refusal");
  }
  require(admission.job() > 0 && admission.job_dir().starts_with('/'), "a job of no directory");
  require_readable(admission.job_dir(), "a directory");
}

std::vector<std::string> admission_seeds() {
  v1::Admission admission;
  admission.set_nonce("00ff");
  admission.set_job(17);
  admission.set_job_dir("/fsx/ada/jobs/17");
  admission.set_programs("/opt/hpctl/bin");
  admission.set_scheduler("slurm");
  admission.add_nodes("p5-1");
  return {admission.SerializeAsString()};
}

void run_job_summary(std::string_view input) {
  v1::JobSummary wire;
  if (!wire.ParseFromString(std::string(input))) return;
  const JobSummary summary = to_job_summary(wire);
  if (const auto eta = eta_ms(summary)) require(*eta >= 0, "the end was before now");
  if (const auto goodput = goodput_of(summary)) {
    require(*goodput >= 0 && *goodput <= 1, "a goodput beyond all");
  }
  v1::JobSummary once;
  fill(summary, once);
  v1::JobSummary twice;
  fill(to_job_summary(once), twice);
  require(once.SerializeAsString() == twice.SerializeAsString(), "told on, it is another job");
}

std::vector<std::string> job_summary_seeds() {
  JobSummary summary;
  summary.job = JobId{17};
  summary.name = "demo";
  summary.state = "RUNNING";
  summary.taken_at = WallTime(1'700'000'000'000);
  summary.owner = "1000";
  summary.step = 10;
  summary.total_steps = 100;
  summary.step_ms = 250;
  summary.nodes = {"n1", "n2"};
  v1::JobSummary wire;
  fill(summary, wire);
  return {wire.SerializeAsString()};
}

void run_child_line(std::string_view input) {
  const std::string line(input.substr(0, input.find('\n')));
  const auto without_end = [](std::string text) {
    text.pop_back();
    return text;
  };
  require_round_trip(line, cluster::order_from_line, [&](const cluster::ChildOrder& order) {
    return without_end(cluster::to_line(order));
  });
  const auto report = cluster::report_from_line(line);
  if (!report.ok()) return require_explained(report.error());
  const auto again = cluster::report_from_line(without_end(cluster::report_line(report)));
  require(again.ok() && again->address == report->address &&
              again->metrics_port == report->metrics_port,
          "written, it is another report");
}

std::vector<std::string> child_line_seeds() {
  return {cluster::to_line({"token", {"n1", "n2"}, "slurm", "/opt/hpctl/bin", 1, ""}),
          cluster::report_line(cluster::ChildReport{"10.0.0.1:5", "PEM", 9090}),
          cluster::report_line(Error{ErrorCode::kUnavailable, "no port"})};
}

void run_job_row(std::string_view input) {
  const std::string directory = scratch() + "/rows";
  const auto rows = cluster::JobRows::open(directory);
  require(rows.ok(), "no directory of rows");
  put_file("rows/1000-17.json", input);
  const auto loaded = rows->load();
  if (!loaded.ok()) return require_explained(loaded.error(), directory);
  require(loaded->size() == 1, "another number of rows");
}

std::vector<std::string> job_row_seeds() {
  return {R"({"uid":1000,"gid":1000,"groups":[1000],"job":17,"job_dir":"/fsx/17","nodes":["n1"],)"
          R"("restart_count":0,"programs":"/opt/hpctl/bin","scheduler":"slurm","token":"00",)"
          R"("address":"10.0.0.1:5","certificate":"PEM","metrics_port":9090,"pid":7,)"
          R"("start_ticks":5,"boot_id":"b","restarts":0})"};
}

void run_identity(std::string_view input) {
  require_round_trip(input, cluster::identity_from_text,
                     [](const cluster::Identity& identity) { return to_text(identity); });
}

std::vector<std::string> identity_seeds() { return {"1000:1000:1000,4,27", "0:0:"}; }

}  // namespace

std::vector<Harness> controller_harnesses() {
  constexpr size_t kShell = size_t{8} << 20;  // a whole state of the core
  return {{"agent_messages", run_agent_messages, agent_message_seeds, {}, kShell, 4096},
          {"stored_rows", run_stored_rows, stored_row_seeds, {}, kShell, 4096},
          {"row", run_row, row_seeds},
          {"admission", run_admission, admission_seeds},
          {"job_summary", run_job_summary, job_summary_seeds},
          {"child_line", run_child_line, child_line_seeds},
          {"job_row", run_job_row, job_row_seeds},
          {"identity", run_identity, identity_seeds}};
}

}  // namespace hpctl::fuzz
