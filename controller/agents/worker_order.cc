// SPDX-License-Identifier: Apache-2.0
#include "controller/agents/worker_order.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/job/lineage.h"
#include "common/worker/workload.h"

namespace hpctl {
namespace {

constexpr int64_t kHangsPatience = 3;  // after a hang a third of limits.abort

std::string checkpoint_path(const core::Job& job, const std::string& checkpoint) {
  if (checkpoint.empty() || checkpoint.front() == '/') return checkpoint;
  return job.spec.checkpoint.dir + "/" + checkpoint;
}

// Where other nodes reach the node. Virtual nodes of the local backend tell none: they share this
// machine's loopback.
std::string address_of(const core::State& state, const core::NodeKey& node) {
  const auto row = state.nodes.find(node);
  if (row == state.nodes.end() || row->second.address.empty()) return "127.0.0.1";
  return row->second.address;
}

// An agent may say anything as its address.
std::string quoted(const std::string& address) { return json_text(nlohmann::json(address)); }

// The address of the node that has rank 0 in this generation.
std::string master_address(const core::State& state, JobId job) {
  const auto slot = state.slots.find(core::SlotKey{job, Rank{0}});
  HP_CHECK(slot != state.slots.end());
  return address_of(state, core::NodeKey{job, slot->second.node});
}

// But for the address to bind. Precondition: the built-in trainer runs.
Workload make_workload(const core::StartWorkers& action, const core::Job& job,
                       const HomePaths& paths) {
  Workload workload;
  workload.job = job.id.value;
  workload.name = job.spec.name;
  workload.generation = action.generation.value;
  const auto name =
      parse_checkpoint_name(action.checkpoint.substr(action.checkpoint.rfind('/') + 1));
  workload.parent_generation = name ? name->generation : action.memory_of.value;
  workload.from_memory = action.memory_of != Generation{};
  for (const Rank rank : action.refilled) workload.refilled.push_back(rank.value);
  workload.former_parts = action.former_parts;
  workload.durable_step = job.committed_step;
  workload.world_size = job.world_size();
  workload.workers_per_node = job.spec.workers_per_node;
  workload.rendezvous_dir = paths.rendezvous(job.id, action.generation);
  workload.resume_checkpoint = checkpoint_path(job, action.checkpoint);
  workload.start_step = action.start_step;
  workload.checkpoint_dir = job.spec.checkpoint.dir;
  workload.claimed = true;
  workload.owner = job.submit_key;
  workload.is_last = action.last;
  if (action.suspect) {
    workload.checkpoint_dir += "/suspect";
    workload.claimed = false;  // owner.json is in the directory above
  }
  if (job.spec.ledger) workload.ledger_dir = job.spec.checkpoint.dir + "/ledger";
  workload.metrics_path = paths.job_metrics(job.id);
  workload.checkpoint = job.spec.checkpoint;
  workload.storage_limit_ms = job.limits.storage_ms;
  workload.last_checkpoint_ms = core::last_checkpoint_ms(job);
  workload.snapshot = job.spec.recovery.snapshot;
  workload.train = *job.spec.train;
  if (workload.train.strategy == Strategy::kHybrid && workload.train.shard_group == 0) {
    workload.train.shard_group = job.spec.workers_per_node;
  }
  return workload;
}

std::vector<std::string> launched_command(const JobSpec& spec) {
  if (spec.command.empty() || spec.environment.kind != "uv") return spec.command;
  std::vector<std::string> command = {"uv", "run", "--project", spec.environment.path, "--"};
  command.insert(command.end(), spec.command.begin(), spec.command.end());
  return command;
}

// The newest fault was of a worker there.
bool is_suspect(const core::Job& job, const std::string& node) {
  if (job.recent_faults.empty()) return false;
  const core::Fault& newest = job.recent_faults.back();
  return newest.rank >= 0 && newest.node == node;
}

void set_preparation(v1::Preparation& preparation, const JobSpec& spec) {
  preparation.mutable_preflight()->Add(spec.health.preflight.begin(), spec.health.preflight.end());
  preparation.mutable_hooks()->Add(spec.hooks.pre.begin(), spec.hooks.pre.end());
  preparation.set_hook_timeout_ms(static_cast<uint32_t>(spec.hooks.timeout_ms));
}

// The fields that do not depend on the generation's ranks, and on the node only by its suspicion.
void fill_node(v1::StartWorkers& order, const core::Job& job, const HomePaths& paths) {
  for (const std::string& module : job.spec.recovery.standby_imports) {
    order.add_standby_imports(module);
  }
  for (const std::string& argument : launched_command(job.spec)) order.add_command(argument);
  if (job.spec.environment.kind == "venv") order.set_venv(job.spec.environment.path);
  set_preparation(*order.mutable_preparation(), job.spec);
  order.mutable_env()->insert(job.spec.env.begin(), job.spec.env.end());
  for (const std::string& file : job.spec.env_files) order.add_env_files(file);
  order.set_log_dir(paths.job_logs(job.id));
}

template <typename Order>
void set_action(Order& order, ActionId id) {
  order.set_action_seq(id.seq.value);
  order.set_action_index(id.index);
}

void fill_reading(v1::ConfirmDamage& order, const core::ConfirmDamage& action,
                  const core::Job& job) {
  const std::string path = checkpoint_path(job, action.claim.checkpoint);
  const size_t slash = path.rfind('/');
  const bool is_elsewhere = action.claim.checkpoint.starts_with('/');
  order.set_directory(path.substr(0, slash));
  order.set_checkpoint(path.substr(slash + 1));
  order.set_generation(is_elsewhere ? 0 : action.newest.value);
  if (action.before_delete) order.set_depth(to_word(job.spec.checkpoint.verify_before_delete));
  const FileFault& part = action.claim.part;
  order.mutable_part()->set_file(part.file);
  order.mutable_part()->set_offset(part.offset);
  order.mutable_part()->set_bytes(part.bytes);
  order.mutable_part()->set_error(part.error);
  order.set_words(action.claim.what);
  order.set_limit_ms(static_cast<uint32_t>(core::reading_limit_ms(job, action)));
}

}  // namespace

std::optional<core::NodeKey> agent_of(const core::Action& action) {
  if (const auto* start = std::get_if<core::StartWorkers>(&action.body)) {
    return core::NodeKey{start->job, start->node};
  }
  if (const auto* stop = std::get_if<core::StopWorkers>(&action.body)) {
    return core::NodeKey{stop->job, stop->node};
  }
  if (const auto* end = std::get_if<core::EndNode>(&action.body)) {
    return core::NodeKey{end->job, end->node};
  }
  if (const auto* confirm = std::get_if<core::ConfirmDamage>(&action.body)) {
    return core::NodeKey{confirm->job, confirm->node};
  }
  return std::nullopt;
}

bool stands_by(const core::State& state, const core::NodeKey& node) {
  return state.jobs.at(node.job).state == core::JobState::kRunning &&
         core::role_of(state, state.nodes.at(node)) == core::NodeRole::kSpare;
}

v1::ControllerMessage make_stand_by(const core::NodeKey& node, const core::State& state,
                                    const HomePaths& paths) {
  const core::Job& job = state.jobs.at(node.job);
  v1::ControllerMessage message;
  message.set_job(job.id.value);
  v1::StartWorkers& like = *message.mutable_stand_by()->mutable_like();
  fill_node(like, job, paths);
  like.mutable_preparation()->set_suspect(is_suspect(job, node.name));
  like.set_generation(job.generation.value);
  like.set_standbys(static_cast<uint32_t>(core::wanted_standbys(job, core::NodeRole::kSpare)));
  return message;
}

void OrderMaker::make_common_part(const core::StartWorkers& action, const core::Job& job,
                                  const std::string& master, uint16_t port) {
  v1::StartWorkers order;
  fill_node(order, job, paths_);
  order.set_generation(action.generation.value);
  workload_before_.clear();
  workload_after_.clear();
  if (job.spec.train) {  // a command has neither
    // A key stands in no string of the document: its quotes would be escaped there.
    const std::string key = R"("bind_address":")";
    Workload workload = make_workload(action, job, paths_);
    workload.bind_address.clear();
    const std::string text = to_json_text(workload);
    const size_t at = text.find(key);
    HP_CHECK(at != std::string::npos);
    workload_before_ = text.substr(0, at + key.size() - 1);
    workload_after_ = text.substr(at + key.size() + 1);
    order.set_standbys(static_cast<uint32_t>(core::wanted_standbys(job, core::NodeRole::kActive)));
  }
  for (const HangRule& rule : job.spec.recovery.hang_rules) order.add_hang_patterns(rule.pattern);
  order.set_world_size(job.world_size());
  order.set_restart_count(static_cast<int32_t>(job.restarts));
  order.set_max_restarts(static_cast<int32_t>(job.spec.recovery.max_restarts));
  order.set_master_addr(master);
  order.set_master_port(port);
  order.set_group_world_size(job.world_size() / job.spec.workers_per_node);
  common_ = std::move(order);
}

void OrderMaker::fill(v1::StartWorkers& order, const core::StartWorkers& action,
                      const core::State& state) {
  const core::Job& job = state.jobs.at(action.job);
  const std::string master = master_address(state, job.id);
  const uint16_t port = ports_.of(job.id, action.generation);
  const int32_t world_size = job.world_size();
  const auto basis =
      std::tie(job.id, action.generation, action.checkpoint, action.start_step, action.memory_of,
               action.refilled, action.former_parts, action.last, action.suspect,
               job.committed_step, job.restarts, world_size, master, port);
  if (basis != basis_) {
    make_common_part(action, job, master, port);
    basis_ = basis;
  }
  order = common_;
  if (!workload_before_.empty()) {
    const std::string address = address_of(state, core::NodeKey{job.id, action.node});
    order.set_workload_json(workload_before_ + quoted(address) + workload_after_);
  }
  for (const Rank rank : action.ranks) order.add_ranks(rank.value);
  order.mutable_preparation()->set_suspect(is_suspect(job, action.node));
  // Ranks are bound to nodes in blocks of workers_per_node.
  if (!action.ranks.empty()) {
    order.set_group_rank(action.ranks.front().value / job.spec.workers_per_node);
  }
}

v1::ControllerMessage OrderMaker::make(const core::Action& action, const core::State& state) {
  v1::ControllerMessage message;
  if (const auto* start = std::get_if<core::StartWorkers>(&action.body)) {
    message.set_job(start->job.value);
    fill(*message.mutable_start_workers(), *start, state);
    set_action(*message.mutable_start_workers(), action.id);
  } else if (const auto* stop = std::get_if<core::StopWorkers>(&action.body)) {
    message.set_job(stop->job.value);
    v1::StopWorkers& order = *message.mutable_stop_workers();
    set_action(order, action.id);
    order.set_generation(stop->generation.value);
    const core::Job& job = state.jobs.at(stop->job);
    const int64_t grace_ms =
        stop->graceful ? core::last_checkpoint_ms(job) : job.spec.stop_grace_ms();
    order.set_grace_ms(static_cast<uint32_t>(grace_ms));
    const bool may_stay = job.spec.train && !stop->graceful && !core::wants_new_processes(job);
    // One that hangs does not hear it, and the others, which wait for it, leave at once.
    const int64_t abort_ms = job.limits.abort_ms / (stop->stacks ? kHangsPatience : 1);
    if (may_stay) order.set_abort_ms(static_cast<uint32_t>(abort_ms));
    order.set_reason(action.reason);
    order.set_stacks(stop->stacks);
  } else if (const auto* end = std::get_if<core::EndNode>(&action.body)) {
    message.set_job(end->job.value);
    v1::EndNode& order = *message.mutable_end_node();
    set_action(order, action.id);
    order.set_reason(action.reason);
    order.set_stacks(end->stacks);
    const HooksSpec& hooks = state.jobs.at(end->job).spec.hooks;
    order.mutable_hooks()->Add(hooks.post.begin(), hooks.post.end());
    order.set_hook_timeout_ms(static_cast<uint32_t>(hooks.timeout_ms));
  } else if (const auto* confirm = std::get_if<core::ConfirmDamage>(&action.body)) {
    message.set_job(confirm->job.value);
    fill_reading(*message.mutable_confirm_damage(), *confirm, state.jobs.at(confirm->job));
    set_action(*message.mutable_confirm_damage(), action.id);
  }
  return message;
}

}  // namespace hpctl
