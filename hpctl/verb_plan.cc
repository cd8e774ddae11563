// SPDX-License-Identifier: Apache-2.0
// hpctl plan: what a training job will need, before it runs.

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/jobfile/job_yaml.h"
#include "common/layout/mesh.h"
#include "common/layout/sharding.h"
#include "hpctl/checkpoint_room.h"
#include "hpctl/exit_codes.h"
#include "hpctl/job_file.h"
#include "hpctl/user_file.h"
#include "hpctl/verbs.h"
#include "hpctl/worker_memory.h"
#include "trainer/arch/lora.h"
#include "trainer/plan/advice.h"
#include "trainer/plan/gpu_models.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/plan/plan_text.h"
#include "trainer/plan/speed_plan.h"

namespace hpctl {
namespace plan_parts {
namespace {

constexpr const char* kHelp = R"(
Estimates what a job with workload.train needs, without running it: a worker's memory by component,
operations per token and step, and the time of a step on a known GPU. It also advises changes that
make the job fit or run faster. The data need not exist.

Operations are counted as TorchTitan (whole causal attention) and Megatron-LM (half of it) count
them; MFU follows TorchTitan. Memory covers the trainer's tensors and buffers. The program and its
libraries need more, so a plan may use 90 %. A job that may shrink (nodes.min) must fit on the
fewest nodes too, where shards are larger. If nothing fits there, all nodes count. Keys that are
auto are chosen first, as `hpctl submit` chooses them, and printed with the reason.

The advised changes build on one another, and those that save memory come first. Each figure is for
a job with all changes above it.

Examples:
  hpctl plan job.yaml --gpu h100
  hpctl plan job.yaml --gpu h200 --nodes 4
  hpctl plan job.yaml --gpu h100 --write fits.yaml && hpctl submit fits.yaml
  hpctl plan job.yaml                      on CPUs: memory and operations only

Options:
  --gpu NAME   a10g, a100, a100-40g, b200, gb200, h100, h100-nvl, h100-pcie, h20, h200, l40s, mi300x
               or cpu; by default the GPU that slurm.gres names (gpu:h100:8), else cpu
  --nodes N    instead of the job file's
  --json       {"parameters", "world_size", "mesh": {"pp", "dp_replicate", "dp_shard", "cp", "tp"},
               "memory": [{"name", "bytes", "why"}], "total_bytes", "device_bytes", "fits",
               "flops_per_token", "flops_per_token_causal", "flops_per_step",
               "step_s": [low, high], "mfu": [low, high], "send_bytes",
               "advice": [{"change", "reason"}], "instead": [the same]}; without a GPU no
               device_bytes, fits, step_s, mfu, advice and instead; with memory.offload
               "host_memory", like "memory"; where keys were auto "chosen": [{"key", "value",
               "reason"}] and "chosen_for"; with recovery.standbys "standbys": {"per_node",
               "bytes_per_node"}; with fewer nodes.min than nodes "nodes_min": {"nodes", "bytes":
               the most on so many and more}, and with a GPU its "fits": without it "fits" is true
               only where nothing fits there; "checkpoints": {"directory", "bytes_each", "most",
               "stored", "bytes": of those not stored yet, "free_bytes" and "quota_bytes": null if
               not known, "fits"}; with checkpoint.mirror "mirror", like "checkpoints"
  --write OUT  the job file with all advised changes, every key written out; a file that is there
               is replaced

Exit codes: 0 planned (with --write: written), 1 it does not fit, or could not be written, 2 wrong
arguments or job file, or nothing to write
)";

struct Plan {
  ChosenValues chosen;
  std::string misfit;  // of keys that are auto, whatever they are
  PlanSetting setting;
  std::vector<MeshDimension> mesh;
  int64_t standbys = 0;              // on each node
  const GpuModel* device = nullptr;  // null: a CPU
  std::vector<Block> blocks;
  MemoryPlan memory;      // on all nodes
  double most_bytes = 0;  // on the fewest nodes and more
  FlopsPerToken flops;
  std::optional<SpeedPlan> speed;
  Advice advice;
  std::vector<CheckpointRoom> rooms;       // of checkpoint.dir, and of its mirror
  std::vector<std::string> missing_rooms;  // what is known to be missing

  double standby_bytes() const {
    return kStandbyBytes * static_cast<double>(standbys);
  }  // on each node
  double usable_bytes() const { return device->memory_bytes * kUsableMemory; }
  bool fits_all() const { return memory.total() <= usable_bytes(); }
  bool fits_fewest() const { return most_bytes <= usable_bytes(); }
  bool fits() const {
    if (device == nullptr) return misfit.empty();
    return advice.on_all_nodes ? fits_all() : fits_fewest();
  }
  double tokens_per_step() const {
    return static_cast<double>(setting.train.batch.global * setting.train.data.seq_len);
  }
};

std::string gib(double bytes) { return plan_text("%.2f", gibibytes(bytes)); }

// "76 % of 80.00 GiB"
std::string share_of_device(const Plan& plan, double bytes) {
  return plan_text("%.0f %% of %.2f GiB", 100 * bytes / plan.device->memory_bytes,
                   gibibytes(plan.device->memory_bytes));
}

// Those that this version runs.
std::vector<Strategy> known_strategies(const JobSpec& spec) {
  std::vector<Strategy> known;
  for (const Strategy strategy : {Strategy::kNoShard, Strategy::kOptimizer, Strategy::kShardGradOp,
                                  Strategy::kFull, Strategy::kHybrid}) {
    JobSpec changed = spec;
    changed.train->strategy = strategy;
    if (find_problems(changed).empty()) known.push_back(strategy);
  }
  return known;
}

// Of a job whose keys are chosen.
Plan make_plan(const JobSpec& spec, const GpuModel* device) {
  Plan plan;
  plan.chosen = spec.chosen;
  plan.device = device;
  plan.standbys = spec.recovery.standbys;
  plan.setting = setting_of(spec, device != nullptr);
  const auto mesh = mesh_of(*spec.train, spec.world_size(), spec.workers_per_node);
  if (mesh.ok()) plan.mesh = mesh->dimensions();
  plan.blocks = trained_layout(*spec.train);
  plan.memory = plan_memory(plan.setting, plan.blocks);
  plan.most_bytes = most_memory(plan.setting, plan.blocks);
  const auto home = home_from_environment();
  plan.rooms = find_checkpoint_rooms(spec, home.ok() ? &*home : nullptr);
  for (const CheckpointRoom& room : plan.rooms) {
    const std::string missing = describe_missing_room(room, spec.checkpoint);
    if (!missing.empty()) plan.missing_rooms.push_back(missing);
  }
  plan.flops =
      flops_per_token(spec.train->model, plan.blocks, spec.train->data.seq_len, spec.train->lora);
  if (device == nullptr) return plan;
  plan.speed = plan_speed(plan.setting, plan.blocks, *device);
  plan.advice =
      advise(plan.setting, plan.blocks, *device, device->memory_bytes, known_strategies(spec));
  return plan;
}

nlohmann::ordered_json json_of(const std::vector<MemoryPart>& parts) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const MemoryPart& part : parts) {
    array.push_back({{"name", part.name}, {"bytes", part.bytes}, {"why", part.why}});
  }
  return array;
}

nlohmann::ordered_json json_of(const std::vector<MeshDimension>& mesh) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const MeshDimension& dimension : mesh) object[dimension.name] = dimension.degree;
  return object;
}

nlohmann::ordered_json json_of(const std::vector<ChosenValue>& values) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const ChosenValue& value : values) {
    array.push_back({{"key", value.key}, {"value", value.value}, {"reason", value.reason}});
  }
  return array;
}

nlohmann::ordered_json json_of(const std::vector<Change>& changes) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Change& change : changes) {
    array.push_back({{"change", change.change}, {"reason", change.reason}});
  }
  return array;
}

nlohmann::ordered_json json_of(const CheckpointRoom& room) {
  nlohmann::ordered_json document = {{"directory", room.directory}, {"bytes_each", room.each},
                                     {"most", room.most},           {"stored", room.stored},
                                     {"bytes", room.needed()},      {"free_bytes", nullptr},
                                     {"quota_bytes", nullptr},      {"fits", room.fits()}};
  if (room.free) document["free_bytes"] = *room.free;
  if (room.quota) document["quota_bytes"] = *room.quota;
  return document;
}

void print_json(const Terminal& terminal, const Plan& plan) {
  nlohmann::ordered_json document = {{"parameters", parameter_count(plan.blocks)},
                                     {"world_size", plan.setting.world_size()},
                                     {"mesh", json_of(plan.mesh)},
                                     {"memory", json_of(plan.memory.parts)},
                                     {"total_bytes", plan.memory.total()},
                                     {"flops_per_token", plan.flops.whole},
                                     {"flops_per_token_causal", plan.flops.causal},
                                     {"flops_per_step", plan.flops.whole * plan.tokens_per_step()},
                                     {"checkpoints", json_of(plan.rooms.front())}};
  if (plan.rooms.size() > 1) document["mirror"] = json_of(plan.rooms.back());
  if (!plan.chosen.values.empty()) {
    document["chosen"] = json_of(plan.chosen.values);
    document["chosen_for"] = plan.chosen.basis;
  }
  if (!plan.memory.host.empty()) document["host_memory"] = json_of(plan.memory.host);
  if (plan.standbys > 0) {
    document["standbys"] = {{"per_node", plan.standbys}, {"bytes_per_node", plan.standby_bytes()}};
  }
  if (plan.setting.may_shrink()) {
    auto& fewest = document["nodes_min"];
    fewest = {{"nodes", plan.setting.fewest_nodes()}, {"bytes", plan.most_bytes}};
    if (plan.device != nullptr) fewest["fits"] = plan.fits_fewest();
  }
  if (plan.speed) {
    const SpeedPlan& s = *plan.speed;
    document["device_bytes"] = plan.device->memory_bytes;
    document["fits"] = plan.fits();
    document["step_s"] = {s.step_low_s, s.step_high_s};
    document["mfu"] = {s.mfu_low, s.mfu_high};
    document["send_bytes"] = s.send_bytes;
    document["advice"] = json_of(plan.advice.changes);
    document["instead"] = json_of(plan.advice.instead);
  }
  terminal.out << json_text(document) << "\n";
}

void print_speed(const Terminal& terminal, const Plan& plan) {
  const SpeedPlan& s = *plan.speed;
  const double world = plan.setting.world_size();
  terminal.out << "\nA step on " << plan.setting.world_size() << " x " << plan.device->name << ": "
               << plan_text("%.3g to %.3g s, %.0f to %.0f tokens/s each, MFU %.0f to %.0f %%\n",
                            s.step_low_s, s.step_high_s, s.tokens_per_step / s.step_high_s / world,
                            s.tokens_per_step / s.step_low_s / world, 100 * s.mfu_low,
                            100 * s.mfu_high)
               << plan_text("  computation %.3g to %.3g s", s.compute_low_s, s.compute_high_s)
               << (s.recompute > 1
                       ? plan_text(" (recomputation adds %.0f %%)", 100 * (s.recompute - 1))
                       : std::string())
               << plan_text(", communication %.3g s (%s GiB sent per worker)\n", s.communication_s,
                            gib(s.send_bytes).c_str())
               << (s.offload_s > 0
                       ? plan_text("  offloaded state to the GPU and back %.3g s\n", s.offload_s)
                       : std::string())
               << "  assumed: " << kUsualMfuSource << ";\n"
               << "  three quarters of a link's bandwidth, and of a node's adapters together (AWS' "
                  "nccl-tests over EFA reach more);\n  communication hidden behind computation "
                  "where that lasts longer\n";
}

void print_what_is_for_gpus(const Terminal& terminal, const Plan& plan) {
  const GpuSpec& gpu = plan.setting.train.gpu;
  if (gpu == GpuSpec()) return;
  if (plan.device == nullptr) {
    terminal.out << "\nworkload.train.gpu changes nothing here: this is a CPU.\n";
  } else if (!gpu.deterministic) {
    terminal.out << "\ngpu.deterministic: false: no two runs have the same bits, and checkpoints "
                    "are not exact.\n";
  }
}

// Whether it fits there, the plan cannot know.
void print_host_memory(const Terminal& terminal, const Plan& plan) {
  if (!plan.setting.train.memory.offload.empty() && plan.device == nullptr) {
    terminal.out << "\nmemory.offload moves nothing here: a CPU's memory is the host's.\n";
  }
  if (plan.memory.host.empty()) return;
  terminal.out << "\n";
  Table table({"HOST MEMORY OF A WORKER", "GIB", "HOW"});
  double total = 0;
  for (const MemoryPart& part : plan.memory.host) {
    table.add({part.name, gib(part.bytes), part.why});
    total += part.bytes;
  }
  table.add({"total", gib(total),
             "times " + std::to_string(plan.setting.workers_per_node) + " on each node"});
  table.print(terminal);
}

void print_standbys(const Terminal& terminal, const Plan& plan) {
  if (plan.standbys == 0) return;
  terminal.out << "\nEach node also has " << counted(plan.standbys, "standby")
               << " (recovery.standbys): " << gib(plan.standby_bytes())
               << " GiB of host memory, as measured.\n";
}

void print_room(const Terminal& terminal, const CheckpointRoom& room) {
  const bool first = room.key == "checkpoint.dir";
  terminal.out << (first ? "\nCheckpoints: " : "Mirror: ") << size_text(room.each) << " each, "
               << room.most
               << " at most at a time: " << size_text(room.each * static_cast<double>(room.most));
  if (room.stored > 0) terminal.out << ", of which " << room.stored << " are there";
  if (room.free) terminal.out << "; " << size_text(*room.free) << " free";
  if (room.quota) terminal.out << "; the quota leaves " << size_text(*room.quota);
  terminal.out << "\n";
}

void print_rooms(const Terminal& terminal, const Plan& plan) {
  for (const CheckpointRoom& room : plan.rooms) print_room(terminal, room);
  for (const std::string& missing : plan.missing_rooms) {
    terminal.out << "WARNING: " << printable(missing) << ".\n";
  }
}

void print_changes(const Terminal& terminal, const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    terminal.out << "  " << change.change << "\n    " << change.reason << "\n";
  }
}

void print_advice(const Terminal& terminal, const Plan& plan) {
  if (!plan.advice.changes.empty()) terminal.out << "\nAdvice:\n";
  print_changes(terminal, plan.advice.changes);
  if (!plan.advice.instead.empty()) terminal.out << "Or instead:\n";
  print_changes(terminal, plan.advice.instead);
  if (plan.fits() || !plan.advice.setting) return;
  const double bytes = most_memory(*plan.advice.setting, plan.blocks);
  terminal.out << "With all of the advice it fits"
               << (plan.advice.on_all_nodes ? " on all nodes: " : ": ")
               << share_of_device(plan, bytes) << ". --write OUT writes that job file.\n";
}

void print_verdict(const Terminal& terminal, const Plan& plan) {
  const std::string fewest = "nodes.min, " + std::to_string(plan.setting.fewest_nodes());
  if (plan.advice.on_all_nodes && plan.advice.setting) {
    terminal.out << "\nNothing fits on " << fewest
                 << ": a job that shrinks may end for want of memory. The plan is for all nodes.\n";
  }
  if (plan.fits()) return;
  if (plan.device == nullptr) {
    terminal.out << "\nIt does NOT fit: " << plan.misfit << ".\n";
  } else if (plan.fits_all()) {
    terminal.out << "\nIt does NOT fit on " << fewest
                 << ": a job that shrinks may end for want of memory.\n";
  } else {
    terminal.out << "\nIt does NOT fit.\n";
  }
}

void print_memory(const Terminal& terminal, const Plan& plan) {
  Table table({"MEMORY OF A WORKER", "GIB", "HOW"});
  for (const MemoryPart& part : plan.memory.parts) {
    table.add({part.name, gib(part.bytes), part.why});
  }
  const auto colour_of = [](bool fits) { return fits ? Colour::kNone : Colour::kRed; };
  const bool is_gpu = plan.device != nullptr;
  const auto told = [&](double bytes) {
    return is_gpu ? share_of_device(plan, bytes) + "; 90 % is usable" : std::string();
  };
  table.add({"total", gib(plan.memory.total()), told(plan.memory.total())},
            colour_of(is_gpu ? plan.fits_all() : plan.fits()));
  if (plan.setting.may_shrink()) {
    table.add({"most from " + std::to_string(plan.setting.fewest_nodes()) + " to " +
                   counted(plan.setting.nodes, "node"),
               gib(plan.most_bytes), told(plan.most_bytes)},
              colour_of(!is_gpu || plan.fits_fewest()));
  }
  table.print(terminal);
}

// "Mesh: dp_replicate 2 x dp_shard 4"; of one worker nothing.
std::string describe_mesh(const Plan& plan) {
  std::string text;
  for (const MeshDimension& dimension : plan.mesh) {
    if (dimension.degree == 1) continue;
    text +=
        (text.empty() ? "Mesh: " : " x ") + dimension.name + " " + std::to_string(dimension.degree);
  }
  return text.empty() ? "" : text + "\n";
}

void print_text(const Terminal& terminal, const Plan& plan) {
  const ModelSpec& m = plan.setting.train.model;
  terminal.out << plan_text("%.4g parameters, dim %lld, %lld layers; ",
                            static_cast<double>(parameter_count(plan.blocks)),
                            static_cast<long long>(m.dim), static_cast<long long>(m.layers))
               << counted(plan.setting.world_size(), "worker") << ", "
               << to_word(plan.setting.train.strategy) << "\n"
               << describe_mesh(plan) << "\n";
  if (const std::string chosen = describe_chosen(plan.chosen, ""); !chosen.empty()) {
    terminal.out << chosen << "\n";
  }
  print_memory(terminal, plan);
  print_what_is_for_gpus(terminal, plan);
  print_host_memory(terminal, plan);
  print_standbys(terminal, plan);
  print_rooms(terminal, plan);
  terminal.out << plan_text("\nOperations per token: %.4g GFLOP, causal attention halved %.4g\n",
                            plan.flops.whole * 1e-9, plan.flops.causal * 1e-9)
               << plan_text("Operations per step:  %.4g TFLOP in %.0f tokens\n",
                            plan.flops.whole * plan.tokens_per_step() * 1e-12,
                            plan.tokens_per_step());
  if (plan.speed) print_speed(terminal, plan);
  print_verdict(terminal, plan);
  print_advice(terminal, plan);
}

// nodes.min, which is all of them where the file does not give it, follows.
void set_nodes(JobSpec& spec, int32_t nodes) {
  if (spec.min_nodes == spec.nodes) spec.min_nodes = nodes;
  spec.nodes = nodes;
}

// The job with the advised changes as a file. Status 1 from a plan that nothing makes fit.
Outcome write_advised(const JobSpec& spec, const Plan& plan, const std::string& path) {
  if (!plan.advice.setting) {
    return Error{ErrorCode::kInvalidArgument,
                 plan.device == nullptr ? "--write needs --gpu: advice is for a GPU"
                                        : "--write: nothing makes this job fit; nothing written"};
  }
  JobSpec advised = spec;
  set_nodes(advised, plan.advice.setting->nodes);
  advised.train = plan.advice.setting->train;
  return write_user_file(path, to_yaml(advised));
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto told = gpu_option(invocation);
  if (!told.ok()) return report_usage(terminal, "plan", told.error().message);
  const auto nodes = number_option(invocation, "--nodes", 1, 100'000);
  if (!nodes.ok()) return report_usage(terminal, "plan", nodes.error().message);
  const auto read = read_job_file(terminal, invocation.arguments[0]);
  if (!read) return kExitUsage;
  JobSpec spec = *read;
  if (const std::string chosen = choose_workers(spec, {.device = *told}); !chosen.empty()) {
    terminal.err << "hpctl: " << chosen << "\n";
  }
  if (!spec.train) {
    return report_usage(terminal, "plan",
                        "the job has no workload.train, so its needs are unknown");
  }
  if (*nodes) set_nodes(spec, static_cast<int32_t>(**nodes));
  if (const std::string problem = first_problem(spec); !problem.empty()) {
    return report_usage(terminal, "plan", problem);
  }
  const GpuModel* const device = told->value_or(gpu_of_gres(spec.slurm.gres));
  const bool is_cpu = device == nullptr;
  const JobPlace place = {.device = is_cpu ? std::optional<const GpuModel*>(nullptr) : *told};
  const std::string misfit = choose_values(spec, find_worker_memory(spec, place));
  Plan plan = make_plan(spec, device);
  plan.misfit = misfit;
  invocation.json() ? print_json(terminal, plan) : print_text(terminal, plan);
  if (const auto out = invocation.options.find("--write"); out != invocation.options.end()) {
    if (const Outcome written = write_advised(spec, plan, out->second); !written.ok()) {
      const bool wrong_use = exit_code_of_job_file(written.error()) == kExitUsage;
      return wrong_use ? report_usage(terminal, "plan", written.error().message)
                       : report(terminal, written.error());
    }
    terminal.err << "written: " << printable(out->second) << "\n";
    return kExitOk;
  }
  return plan.fits() ? kExitOk : kExitFailed;
}

}  // namespace
}  // namespace plan_parts

Verb plan_verb() {
  return {"plan",
          "FILE [--gpu NAME] [--nodes N] [--write OUT]",
          "what a training job needs: memory, operations, time",
          plan_parts::kHelp,
          1,
          1,
          {Option{"--gpu", nullptr, "NAME"}, Option{"--nodes", nullptr, "N"},
           Option{"--write", nullptr, "OUT"}},
          plan_parts::run};
}

}  // namespace hpctl
