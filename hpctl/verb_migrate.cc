// SPDX-License-Identifier: Apache-2.0
// hpctl migrate: a job file from the files of other programs.
#include <filesystem>

#include "common/base/join.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/job_file.h"
#include "hpctl/migrate/migrate.h"
#include "hpctl/user_file.h"
#include "hpctl/verbs.h"
#include "hpctl/worker_memory.h"
#include "trainer/arch/lora.h"
#include "trainer/plan/gpu_models.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/plan/plan_text.h"
#include "trainer/plan/speed_plan.h"

namespace hpctl {
namespace migrate_parts {
namespace {

constexpr const char* kHelp = R"(
Makes a job file from what other programs are configured with: TorchTitan's TOML, DeepSpeed's
ds_config.json, Hugging Face's config.json and TrainingArguments (JSON or YAML), Megatron-LM's and
the FSDP guide's arguments, and batch scripts with #SBATCH lines, exports and srun or torchrun.
Several files together give one job. Nothing is run.

The job file has only the keys that differ from hpctl's defaults, each with its source. Where the
other program's default differs, it is written out. Standard error tells what became of every key:
taken, taken with a change, not needed here, or not possible. docs/migrate.md lists all keys.

Examples:
  hpctl migrate train.sbatch llama3_8b.toml -o job.yaml
  hpctl migrate train.sbatch ds_config.json training_args.json config.json --gpu h100
  hpctl migrate train.sbatch --as command -o job.yaml

Options:
  --as train    a job of the built-in trainer; the default where a file configures training
  --as command  the program of the script as it is, without its launcher
  --gpu NAME    the workers have this GPU, as `hpctl plan` takes it: for the plan at the end
  --set KEY=VALUE
                use VALUE for KEY of job.yaml; may be repeated. For what no file says
  -o, --output OUT
                write the job file there, and not to standard output; a file that is there is
                replaced
  --tables      print the tables of docs/migrate.md, and read no file
  --json        {"form", "job_file", "taken", "changed", "unneeded", "impossible": [{"source",
                "text"}], "unknown": [TEXT]}

Exit codes: 0 the job file is made, 1 a key is not possible or the file could not be written, 2
wrong arguments, a file of no known program, or a key that hpctl does not know
)";

struct Group {
  migrate::Fate fate;
  const char* name;
  Colour colour;
};
constexpr Group kGroups[] = {
    {migrate::Fate::kTaken, "taken", Colour::kGreen},
    {migrate::Fate::kChanged, "changed", Colour::kYellow},
    {migrate::Fate::kUnneeded, "unneeded", Colour::kDim},
    {migrate::Fate::kImpossible, "impossible", Colour::kRed},
};

void print_report(const Terminal& terminal, const migrate::Migration& result) {
  for (const Group& group : kGroups) {
    const auto& lines = result.draft.lines(group.fate);
    if (lines.empty()) continue;
    terminal.err << to_word(group.fate) << " (" << lines.size() << "):\n";
    for (const migrate::ReportLine& line : lines) {
      terminal.err << "  " << printable(line.source) << ": " << printable(line.text) << "\n";
    }
  }
}

nlohmann::ordered_json json_of_report(const migrate::Migration& result) {
  nlohmann::ordered_json document = {
      {"form", result.form == migrate::Form::kCommand ? "command" : "train"},
      {"job_file", nullptr}};
  if (!result.text.empty()) document["job_file"] = result.text;
  for (const Group& group : kGroups) {
    auto& array = document[group.name] = nlohmann::ordered_json::array();
    for (const migrate::ReportLine& line : result.draft.lines(group.fate)) {
      array.push_back({{"source", line.source}, {"text", line.text}});
    }
  }
  document["unknown"] = result.unknown;
  return document;
}

// Of a job whose values are chosen, as `hpctl submit --dry-run` and `hpctl plan` tell them.
void print_plan(const Terminal& terminal, JobSpec spec, std::optional<const GpuModel*> told) {
  const JobPlace place = {.device = told};
  if (const std::string workers = choose_workers(spec, place); !workers.empty()) {
    terminal.err << workers << "\n";
  }
  terminal.err << "job " << printable(spec.name) << ": " << counted(spec.nodes, "node") << " x "
               << counted(spec.workers_per_node, "worker") << "\n";
  if (!spec.train) return;
  const GpuModel* const device = told.value_or(gpu_of_gres(spec.slurm.gres));
  const std::string misfit = choose_values(spec, find_worker_memory(spec, place));
  terminal.err << describe_chosen(spec.chosen, "");
  const PlanSetting setting = setting_of(spec, device != nullptr);
  const auto blocks = trained_layout(*spec.train);
  terminal.err << plan_text("%.4g parameters; a worker needs %.2f GiB",
                            static_cast<double>(parameter_count(blocks)),
                            gibibytes(plan_memory(setting, blocks).total()));
  if (device != nullptr) {
    const SpeedPlan speed = plan_speed(setting, blocks, *device);
    terminal.err << plan_text(" of %.0f on %s; a step takes %.3g to %.3g s, MFU %.0f to %.0f %%",
                              gibibytes(device->memory_bytes), std::string(device->name).c_str(),
                              speed.step_low_s, speed.step_high_s, 100 * speed.mfu_low,
                              100 * speed.mfu_high);
  }
  terminal.err << "\n";
  if (!misfit.empty()) terminal.err << "It does NOT fit: " << misfit << ".\n";
}

Result<migrate::Form> form_option(const Invocation& invocation) {
  const auto option = invocation.options.find("--as");
  if (option == invocation.options.end()) return migrate::Form::kAuto;
  if (option->second == "train") return migrate::Form::kTrain;
  if (option->second == "command") return migrate::Form::kCommand;
  return Error{ErrorCode::kInvalidArgument,
               "--as: expected train or command, found \"" + option->second + "\""};
}

// Of the job file, which is in `output` or goes to a file of this directory.
std::string directory_of(const std::string& output) {
  return std::filesystem::absolute(output.empty() ? "job.yaml" : output).parent_path().string();
}

int tell_impossible(const Invocation& invocation, const migrate::Migration& result) {
  const Terminal& terminal = invocation.terminal;
  for (const std::string& line : result.unknown) {
    terminal.err << "hpctl: " << printable(line) << "\n";
  }
  if (!result.unknown.empty()) return kExitUsage;
  terminal.err << "hpctl: no job file: "
               << counted(
                      static_cast<int64_t>(result.draft.lines(migrate::Fate::kImpossible).size()),
                      "point")
               << " not possible";
  if (result.form != migrate::Form::kCommand) {
    terminal.err << "; `hpctl migrate " << printable(join(invocation.arguments, " "))
                 << " --as command` starts the program as it is";
  }
  terminal.err << "\n";
  return kExitFailed;
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  if (invocation.has("--tables")) {
    terminal.out << migrate::migration_reference();
    return kExitOk;
  }
  if (invocation.arguments.empty()) {
    return report_usage(terminal, "migrate", "expected at least one FILE");
  }
  const auto form = form_option(invocation);
  if (!form.ok()) return report_usage(terminal, "migrate", form.error().message);
  const auto told = gpu_option(invocation);
  if (!told.ok()) return report_usage(terminal, "migrate", told.error().message);
  const auto given = given_values(invocation);
  if (!given.ok()) return report_usage(terminal, "migrate", given.error().message);
  const auto option = invocation.options.find("--output");
  const std::string output = option == invocation.options.end() ? "" : option->second;
  const auto result =
      migrate::migrate_files({invocation.arguments, *form, *given, directory_of(output)});
  if (!result.ok()) {
    report(terminal, result.error());
    return exit_code_of_job_file(result.error());
  }
  if (invocation.json()) {
    terminal.out << json_text(json_of_report(*result)) << "\n";
  } else {
    print_report(terminal, *result);
  }
  if (!result->spec) return tell_impossible(invocation, *result);
  if (!output.empty()) {
    if (const Outcome written = write_user_file(output, result->text); !written.ok()) {
      return report(terminal, written.error());
    }
    terminal.err << "written: " << printable(output) << "\n";
  } else if (!invocation.json()) {
    terminal.out << result->text;
  }
  print_plan(terminal, *result->spec, *told);
  return kExitOk;
}

}  // namespace
}  // namespace migrate_parts

Verb migrate_verb() {
  return {"migrate",
          "FILE... [--as FORM] [--gpu NAME] [--set KEY=VALUE] [-o OUT]",
          "make a job file from another program's configuration",
          migrate_parts::kHelp,
          0,
          16,
          {Option{"--as", nullptr, "FORM"}, Option{"--gpu", nullptr, "NAME"},
           Option{"--set", nullptr, "KEY=VALUE", true}, Option{"--output", "-o", "OUT"},
           Option{"--tables"}},
          migrate_parts::run};
}

}  // namespace hpctl
