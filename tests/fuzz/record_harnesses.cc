// SPDX-License-Identifier: Apache-2.0
// Records in JSON on shared disks, and what nodes find on theirs.
#include <algorithm>
#include <set>

#include "common/base/bounded_json.h"
#include "common/base/file.h"
#include "common/base/plausible.h"
#include "common/job/directory_owner.h"
#include "common/job/endpoint.h"
#include "common/job/exclusion.h"
#include "common/job/job_files.h"
#include "common/job/job_spec.h"
#include "common/job/lineage.h"
#include "common/jobfile/job_yaml.h"
#include "common/recorder/dump.h"
#include "common/recorder/pickle.h"
#include "common/recorder/verdict.h"
#include "common/slurm/hyperpod.h"
#include "common/slurm/slurm_messages_json.h"
#include "common/worker/workload.h"
#include "controller/publish/status_files.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/properties.h"
#include "tests/fuzz/scratch.h"

namespace hpctl::fuzz {
namespace {

using nlohmann::json;

// ---- JSON itself --------------------------------------------------------------------------------

size_t depth_of(const json& value) {
  size_t deepest = 0;
  if (!value.is_structured()) return 0;
  for (const json& element : value) deepest = std::max(deepest, depth_of(element));
  return deepest + 1;
}

void run_json(std::string_view input) {
  constexpr JsonLimits kLimits = {.depth = 12, .values = 10'000, .distinct_names = true};
  const json document = parse_json_or_discard(input, kLimits);
  try {
    require(parse_json(input, kLimits) == document, "the two ways in differ");
  } catch (const json::exception& e) {
    require(document.is_discarded(), "only one of the two ways in refuses it");
    require_readable(e.what(), "an error");
    return;
  }
  require(depth_of(document) <= kLimits.depth, "nested deeper than allowed");
  const std::string text = document.dump();
  require(parse_json_or_discard(text, kLimits).dump() == text, "written, it is another document");
}

std::vector<std::string> json_seeds() {
  return {R"({"a":[1,-2,3.5,true,null,"\u00e9\n"],"b":{"c":[[[]]]}})", "[0,1e300,-1e-300]", "17",
          "[18446744073709551615,-9223372036854775808]", R"({"a":1,"a":2})"};
}

// ---- the lineage --------------------------------------------------------------------------------

GenerationRecord some_generation() {
  GenerationRecord record;
  record.generation = 3;
  record.parent = 2;
  record.start_step = 40;
  record.checkpoint = "step-40.g2";
  record.job = 17;
  record.job_name = "demo";
  record.members = {{0, "n0", "i-0"}, {1, "n1", "i-1"}};
  record.reason = "worker 2 on n1 died of SIGKILL";
  record.restarts_used = 1;
  record.damaged = {"step-30.g1"};
  record.quarantined = {{"n2", "i-2", "hpctl", "Xid 79", true, 5, 0, 6, false, 7}};
  return record;
}

void run_generation(std::string_view input) {
  require_round_trip(input, generation_record_from_json,
                     [](const GenerationRecord& record) { return to_json_text(record); });
  const auto record = generation_record_from_json(std::string(input));
  if (!record.ok()) return;
  require(record->generation > 0 && record->generation <= kMaxGeneration, "a made-up generation");
  require(record->parent < record->generation, "a generation that falls");
  require(record->start_step <= kMaxStep, "a made-up step");
}

std::vector<std::string> generation_seeds() {
  GenerationRecord first;
  first.generation = 1;
  return {to_json_text(some_generation()), to_json_text(first)};
}

// Records behind each other with zero bytes between; each is put where its number says.
void run_lineage(std::string_view input) {
  constexpr size_t kMostRecords = 6;
  const std::string directory = scratch() + "/lineage";
  require(remove_tree(directory).ok(), "cannot empty a directory");
  for (size_t i = 0; i < kMostRecords && !input.empty(); ++i) {
    const std::string text(input.substr(0, input.find('\0')));
    input.remove_prefix(std::min(input.size(), text.size() + 1));
    const auto record = generation_record_from_json(text);
    const uint64_t number = record.ok() ? record->generation : i + 1;
    put_file("lineage/generations/" + std::to_string(number) + ".json", text);
  }
  const auto records = read_lineage(directory);
  if (!records.ok()) return require_explained(records.error(), "/generations/");
  const auto by_number = [](const auto& a, const auto& b) { return a.generation >= b.generation; };
  require(std::adjacent_find(records->begin(), records->end(), by_number) == records->end(),
          "generations do not ascend");
  const auto chain = chain_of_newest(*records);
  for (size_t i = 0; i < chain.size(); ++i) {
    require(i == 0 || chain[i].generation == chain[i - 1].parent, "a chain of others");
    for (const uint64_t step : {chain[i].start_step, chain[i].start_step + 1}) {
      const CheckpointRef ref{step, chain[i].generation};
      const bool counts = valid_by_lineage(ref, chain);
      for (size_t newer = 0; newer < i; ++newer) {
        require(!counts || chain[newer].start_step >= step, "what a later generation left counts");
      }
    }
  }
}

std::vector<std::string> lineage_seeds() {
  std::string all;
  GenerationRecord record = some_generation();
  for (uint64_t g = 1; g <= 3; ++g) {
    record.generation = g;
    record.parent = g - 1;
    record.start_step = 10 * g;
    all += to_json_text(record) + '\0';
  }
  return {all};
}

void run_directory_owner(std::string_view input) {
  require_round_trip(input, directory_owner_from_json,
                     [](const DirectoryOwner& owner) { return to_json_text(owner); });
}

std::vector<std::string> directory_owner_seeds() {
  DirectoryOwner owner;
  owner.owner = {"0123", 3, "llama", "alice", "/home/alice/.hpctl", "p5-1", "", ""};
  DirectoryOwner next;
  next.owner = {"4567", 812, "llama", "alice", "", "", "/fsx/hpctl/jobs/submit-4567", "c1"};
  next.former = owner.owner;
  next.taken = true;
  return {to_json_text(owner), to_json_text(next)};
}

void run_job_lists(std::string_view input) {
  put_file("job/quarantined-1.json", input);
  put_file("job/excluded-1.json", input);
  const std::string directory = scratch() + "/job";
  const auto quarantined = read_quarantined(directory, 1);
  if (!quarantined.ok()) require_explained(quarantined.error(), "quarantined-1.json");
  const auto excluded = read_exclusion(directory, 1);
  if (!excluded.ok()) require_explained(excluded.error(), "excluded-1.json");
}

std::vector<std::string> job_list_seeds() {
  const std::string directory = scratch() + "/job";
  put_file("job/quarantined-1.json", "");
  require(write_quarantined(directory, 1, some_generation().quarantined).ok() &&
              write_exclusion(directory, 1, Exclusion{{"n0", "n1"}, 2}).ok(),
          "cannot write seeds");
  return {*read_file(directory + "/quarantined-1.json"),
          *read_file(directory + "/excluded-1.json")};
}

// ---- other records ------------------------------------------------------------------------------

void run_controller_record(std::string_view input) {
  require_round_trip(input, controller_record_from_json,
                     [](const ControllerRecord& record) { return to_json_text(record); });
}

std::vector<std::string> controller_record_seeds() {
  ControllerRecord record;
  record.epoch = 2;
  record.address = "192.0.2.1:4711";
  record.certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
  record.node = "p5-3";
  record.pid = 4242;
  record.boot_id = "3f1c";
  record.started_wall_ms = 1'700'000'000'000;
  record.nodes = {"p5-1", "p5-2", "p5-3"};
  record.scheduler = "slurm";
  record.restart_count = 1;
  return {to_json_text(record)};
}

// What is submitted, and job.json.
void run_job_document(std::string_view input) {
  require_round_trip(input, job_spec_from_json, [](const JobSpec& spec) {
    require(spec.nodes > 0 && spec.workers_per_node > 0, "a job without workers");
    require(spec.world_size() > 0, "a world of none");
    return to_json_text(spec);
  });
}

std::vector<std::string> job_document_seeds() {
  std::vector<std::string> seeds;
  for (const char* example : {"command", "quickstart", "slurm"}) {
    const JobYaml job = load_job_yaml(std::string(HPCTL_SOURCE "/examples/") + example + ".yaml");
    require(job.spec.has_value(), std::string("no example ") + example);
    seeds.push_back(to_json_text(*job.spec));
  }
  return seeds;
}

void run_workload(std::string_view input) {
  require_round_trip(input, workload_from_json,
                     [](const Workload& workload) { return to_json_text(workload); });
}

std::vector<std::string> workload_seeds() {
  Workload workload;
  workload.name = "demo";
  workload.world_size = 4;
  Workload again = workload;
  again.from_memory = true;
  again.refilled = {1, 3};
  return {to_json_text(workload), to_json_text(again)};
}

// The small files of a job's directory.
void run_job_files(std::string_view input) {
  const std::string directory = scratch() + "/job";
  for (const char* name : {"job/token", "job/verdict", "job/job.json"}) put_file(name, input);
  if (const auto token = read_token(directory); token.ok()) {
    require(*token + "\n" == input, "a token that is not what the file has");
  } else {
    require_explained(token.error(), "/token");
  }
  const auto verdict = standing_verdict(directory, 1);
  if (!verdict.ok()) require_explained(verdict.error(), "/verdict");
  const auto document = read_job_document(directory);
  if (!document.ok()) require_explained(document.error(), "/job.json");
}

std::vector<std::string> job_file_seeds() {
  JobSpec spec = *load_job_yaml(HPCTL_SOURCE "/examples/command.yaml").spec;
  json document = json::parse(to_json_text(spec));
  document["uid"] = 1000;
  document["submit_key"] = "k";
  return {std::string(64, 'a') + "\n", "0 1\n", "93 18446744073709551615\n", document.dump()};
}

void run_status(std::string_view input) {
  require_round_trip(input, job_view_from_json,
                     [](const JobView& view) { return to_json_text(view); });
}

std::vector<std::string> status_seeds() {
  JobView view;
  view.job = 17;
  view.name = "demo";
  view.state = "RUNNING";
  view.step = 12;
  view.loss = 2.5;
  view.nodes = {NodeView{}};
  view.workers = {WorkerView{}};
  view.counted_at = WallTime(5);
  return {to_json_text(view)};
}

void run_events(std::string_view input) {
  require_round_trip(input.substr(0, input.find('\n')), event_view_from_json,
                     [](const EventView& event) { return to_json_text(event); });
  const auto events = read_events(put_file("events.jsonl", input));
  if (!events.ok()) return require_explained(events.error());
  require(events->size() <= static_cast<size_t>(std::count(input.begin(), input.end(), '\n')),
          "more events than lines");
}

std::vector<std::string> event_seeds() {
  EventView event;
  event.seq = 5;
  event.wall_ms = 1'700'000'000'123;
  event.type = "WorkerExited";
  event.cause = "worker 2 on n1 died of SIGKILL";
  const std::string line = to_json_text(event) + "\n";
  return {line, line + line + line.substr(0, 20)};
}

void run_resource_config(std::string_view input) {
  const auto cluster = parse_resource_config(input, "resource_config.json");
  if (!cluster.ok()) return require_explained(cluster.error(), "resource_config.json");
  for (const HyperpodInstance& instance : cluster->instances) {
    require(!instance.instance_id.empty(), "an instance without a name");
    require(find_instance(*cluster, {instance.address}, instance.instance_id) != nullptr,
            "an instance that is not found again");
  }
}

std::vector<std::string> resource_config_seeds() {
  return {
      R"({"ClusterConfig":{"ClusterName":"c","ClusterArn":"arn:aws:sagemaker:x"},)"
      R"("SlurmConfig":{"PrimaryControllerIp":"10.1.0.1","SecondaryControllerIps":["10.1.0.2"]},)"
      R"("InstanceGroups":[{"Name":"w","InstanceType":"ml.p5.48xlarge","Instances":[)"
      R"({"InstanceName":"w-1","AgentIpAddress":"1.2.3.4","CustomerIpAddress":"10.1.2.3",)"
      R"("InstanceId":"i-0a"}]},{"Name":"e","InstanceType":"ml.c5.xlarge","Instances":null}]})",
      R"({"SlurmConfig":{"SecondaryControllerIps":"10.1.0.2,10.1.0.3"},"InstanceGroups":[]})"};
}

// Answers of hpslurm.
template <typename Message>
void read_slurm(const json& document) {
  try {
    const auto message = document.get<Message>();
    require(json(json(message).get<Message>()) == json(message), "written, it is another message");
  } catch (const json::exception&) {
  }
}

void run_slurm_answer(std::string_view input) {
  const json document = parse_json_or_discard(input);
  if (document.is_discarded()) return;
  read_slurm<SlurmJob>(document);
  read_slurm<std::vector<SlurmNode>>(document);
  read_slurm<std::vector<SlurmReservation>>(document);
  read_slurm<SlurmVersion>(document);
}

std::vector<std::string> slurm_answer_seeds() {
  return {json(SlurmJob{}).dump(), json(std::vector(2, SlurmNode{})).dump(),
          json(std::vector(1, SlurmReservation{})).dump(), json(SlurmVersion{}).dump()};
}

// ---- PyTorch's flight recorders -----------------------------------------------------------------

// One dump, or two with a line "----" between: of two ranks of a job.
constexpr std::string_view kBetweenDumps = "\n----\n";

void run_recorder(std::string_view input) {
  std::map<int32_t, recorder::RankDump> dumps;
  const size_t between = input.find(kBetweenDumps);
  std::vector<std::string_view> texts = {input.substr(0, between)};
  if (between != std::string_view::npos) {
    texts.push_back(input.substr(between + kBetweenDumps.size()));
  }
  for (const std::string_view text : texts) {
    auto dump = recorder::read_dump(text);
    if (!dump.ok()) {
      require_explained(dump.error());
      continue;
    }
    for (const recorder::Operation& operation : dump->operations) {
      require(operation.group < dump->groups.size(), "an operation of no group");
      for (const int64_t n : operation.input_elements) require(n >= 0, "fewer than no elements");
    }
    dumps[static_cast<int32_t>(dumps.size())] = std::move(*dump);
  }
  const recorder::Verdict verdict = recorder::judge(dumps);
  require(!verdict.conclusion.empty(), "a verdict without words");
  for (const int32_t rank : verdict.blamed) {
    require(dumps.contains(rank), "who left no dump is blamed");
  }
}

std::string some_dump(int calls, const char* state) {
  json document = {
      {"version", "2.10"},
      {"pg_config", {{"0", {{"name", "0"}, {"desc", "default_pg"}, {"ranks", "[0, 1]"}}}}},
      {"entries", json::array()}};
  for (int i = 1; i <= calls; ++i) {
    document["entries"].push_back(
        {{"record_id", i},
         {"process_group", {"0", "default_pg"}},
         {"collective_seq_id", i},
         {"profiling_name", "nccl:all_reduce"},
         {"input_sizes", {{3, 4}}},
         {"input_dtypes", {"Float"}},
         {"output_sizes", {{3, 4}}},
         {"output_dtypes", {"Float"}},
         {"state", i == calls ? state : "completed"},
         {"is_p2p", false},
         {"frames", {{{"filename", "/home/ada/train.py"}, {"line", 4}, {"name", "step"}}}}});
  }
  return document.dump();
}

void run_pickle(std::string_view input) {
  constexpr recorder::PickleLimits kLimits = {
      .bytes = 1U << 20, .depth = 16, .values = 20'000, .text = 1U << 20};
  const auto value = recorder::read_pickle(input, kLimits);
  if (!value.ok()) return require_explained(value.error(), "");
  require(depth_of(*value) <= kLimits.depth, "nested deeper than allowed");
  require(value->dump(-1, ' ', false, json::error_handler_t::replace).size() <=
              16 * (kLimits.text + 32 * kLimits.values),
          "larger than allowed");
}

std::string pickled(const json& value) {
  using namespace std::string_literals;
  const auto u32 = [](size_t n) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(n >> (8 * i));
    return bytes;
  };
  if (value.is_null()) return "N";
  if (value.is_boolean()) return value.get<bool>() ? "\x88" : "\x89";
  if (value.is_number_integer()) return "J" + u32(value.get<size_t>());
  if (value.is_string()) {
    return "X" + u32(value.get_ref<const std::string&>().size()) + value.get<std::string>();
  }
  std::string text = value.is_array() ? "](" : "}(";
  for (const auto& [key, element] : value.items()) {
    if (value.is_object()) text += pickled(key);
    text += pickled(element);
  }
  return text + (value.is_array() ? "e" : "u");
}

std::vector<std::string> pickle_seeds() {
  const std::string begin = "\x80\x02";
  return {begin + pickled(json::parse(some_dump(2, "started"))) + ".",
          begin + "](X\x01" + std::string(3, '\0') + "xq\x05h\x05h\x05K\x01K\x02\x86" + "e."};
}

std::vector<std::string> recorder_seeds() {
  const std::string separator(kBetweenDumps);
  return {some_dump(3, "started"), some_dump(3, "started") + separator + some_dump(2, "completed"),
          some_dump(3, "started") + separator + some_dump(3, "scheduled"), pickle_seeds().front()};
}

}  // namespace

std::vector<Harness> record_harnesses() {
  return {{"json", run_json, json_seeds},
          {"generation", run_generation, generation_seeds},
          {"lineage", run_lineage, lineage_seeds},
          {"directory_owner", run_directory_owner, directory_owner_seeds},
          {"job_lists", run_job_lists, job_list_seeds},
          {"controller_record", run_controller_record, controller_record_seeds},
          {"job_document", run_job_document, job_document_seeds},
          {"workload", run_workload, workload_seeds},
          {"job_files", run_job_files, job_file_seeds},
          {"status", run_status, status_seeds},
          {"events", run_events, event_seeds},
          {"resource_config", run_resource_config, resource_config_seeds},
          {"slurm_answer", run_slurm_answer, slurm_answer_seeds},
          {"recorder", run_recorder, recorder_seeds},
          {"pickle", run_pickle, pickle_seeds, {}, size_t{64} << 20}};
}

}  // namespace hpctl::fuzz
