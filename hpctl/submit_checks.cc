// SPDX-License-Identifier: Apache-2.0
#include "hpctl/submit_checks.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/job/duration_text.h"
#include "common/job/environment_file.h"
#include "common/process/python_command.h"
#include "hpctl/program_path.h"
#include "trainer/arch/lora.h"
#include "trainer/checkpoint/lora_base.h"
#include "trainer/data/evaluation_part.h"
#include "trainer/data/sample_reader.h"
#include "trainer/plan/fit.h"

namespace hpctl {
namespace {

namespace fs = std::filesystem;

Error problem(const std::string& message) { return Error{ErrorCode::kFailedPrecondition, message}; }
// The job file asks for what is not there.
Error mistake(const std::string& message) { return Error{ErrorCode::kInvalidArgument, message}; }

Outcome check_programs(const JobSpec& spec) {
  std::vector<std::string> names = {"hpcontroller", "hpagent"};
  if (spec.train) names.emplace_back("hptrain");
  for (const std::string& name : names) {
    const auto program = sibling_program(name);
    if (!program.ok()) return program.error();
  }
  return Ok{};
}

// Whether the directory, or the nearest one above it that exists, takes new entries. Asked by
// making one and removing it: permission bits say nothing about root, read-only mounts, full disks.
Outcome check_writable(const std::string& path, const std::string& what) {
  std::error_code error;
  fs::path at(path);
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  if (!fs::is_directory(at, error)) {
    return problem(what + " " + path + " cannot be created: " + at.string() +
                   " is not a directory");
  }
  std::string probe = (at / ".hpctl-probe-XXXXXX").string();
  if (::mkdtemp(probe.data()) != nullptr && ::rmdir(probe.c_str()) == 0) return Ok{};
  return problem(what + " " + path + " cannot be written: " + at.string() + ": " +
                 std::strerror(errno) + "; choose another directory, or free or unlock this one");
}

Outcome check_in_path(const std::string& program, const std::string& path) {
  if (!find_program(program, path).empty()) return Ok{};
  return mistake("workload.command: \"" + program + "\" is not in PATH");
}

// As the workers will find it, with env taken into account.
Outcome check_program(const std::string& program) {
  if (is_program(program)) return Ok{};
  return mistake("workload.command: " + program + " is " +
                 (is_accessible(program) ? "not an executable file; see chmod +x, or name its "
                                           "interpreter first: [python3, " +
                                               fs::path(program).filename().string() + "]"
                                         : "missing"));
}

// What Python is to run, where that is a file.
std::string script_of(const JobSpec& spec) {
  const auto python = python_command(spec.command);
  return python && python->main == PythonMain::kScript ? python->target : "";
}

Outcome check_script(const JobSpec& spec) {
  const std::string script = script_of(spec);
  if (script.empty() || is_accessible(script)) return Ok{};
  return mistake("workload.command: " + script + " is missing");
}

// Of a program that is here; the agent looks for itself.
Outcome check_stands_by(const JobSpec& spec) {
  const std::string& program = spec.command[0];
  if (spec.recovery.standby_imports.empty() || python_command(spec.command)) return Ok{};
  if (spec.environment.kind == "uv") {
    return mistake("recovery.standby_imports: " + program +
                   " is run by uv, which chooses the Python; name it: [python, " +
                   fs::path(program).filename().string() + "]");
  }
  if (!is_accessible(program) || python_command_in("/", spec.command)) return Ok{};
  return mistake("recovery.standby_imports: " + program +
                 " does not name Python in its first line, as \"#!/usr/bin/env python3\" does; "
                 "remove this key, or name the interpreter first");
}

Outcome check_command(const JobSpec& spec) {
  const EnvironmentSpec& environment = spec.environment;
  const std::string path = inherited_path();
  if (environment.kind == "container") {
    return problem("env: a container needs Slurm with Pyxis; with --local set env: none");
  }
  HP_TRY(check_script(spec));
  HP_TRY(check_stands_by(spec));
  if (environment.kind == "uv") return check_in_path("uv", path);  // it finds the program itself
  const std::string& program = spec.command[0];
  if (program.find('/') != std::string::npos) return check_program(program);
  const bool is_venv = environment.kind == "venv";
  return check_in_path(program, is_venv ? environment.path + "/bin:" + path : path);
}

// What lies beside the job file is here already; other programs may be the nodes' own.
Outcome check_own_program(const JobSpec& spec, const std::string& job_file) {
  std::error_code error;
  const std::string beside = fs::absolute(job_file, error).parent_path().lexically_normal() / "";
  if (script_of(spec).starts_with(beside)) HP_TRY(check_script(spec));
  HP_TRY(check_stands_by(spec));
  if (spec.environment.kind == "uv" || spec.command[0].find('/') == std::string::npos) return Ok{};
  return spec.command[0].starts_with(beside) ? check_program(spec.command[0]) : Outcome(Ok{});
}

bool names_checkpoint(const CheckpointSpec& checkpoint) {
  return checkpoint.resume != "latest" && checkpoint.resume != "none";
}

Outcome check_resume(const CheckpointSpec& checkpoint) {
  const std::string& from = checkpoint.resume;
  if (!names_checkpoint(checkpoint)) return Ok{};
  HP_TRY_ASSIGN(const bool is_checkpoint, has_manifest(from));
  if (is_checkpoint) return Ok{};
  return mistake("checkpoint.resume: " + from +
                 " is not a checkpoint (it has no manifest.json); name a step-N.gG directory, as "
                 "`hpctl checkpoint ls` lists them and `hpctl checkpoint import` makes one");
}

Outcome check_directories(const JobSpec& spec, const HomePaths& paths) {
  HP_TRY(check_writable(paths.home(), "HPCTL_HOME"));
  if (!spec.checkpoint.dir.empty()) {
    HP_TRY(check_writable(spec.checkpoint.dir, "checkpoint.dir"));
  }
  return check_resume(spec.checkpoint);
}

// What the workers find out after they were started.
Outcome check_lora_base(const TrainSpec& train) {
  if (!train.lora.on()) return Ok{};
  const auto manifest = read_manifest(train.lora.base);
  if (!manifest.ok()) {
    return mistake("workload.train.lora.base: " + manifest.error().message +
                   "; a model is imported with: hpctl checkpoint import");
  }
  const Outcome fits = check_base(*manifest, train);
  return fits.ok() ? fits : Outcome(mistake(fits.error().message));
}

// As they do, of the checkpoint that the job file names.
Outcome check_resumed(const JobSpec& spec, const SampleReader& data) {
  if (!names_checkpoint(spec.checkpoint)) return Ok{};
  const TrainSpec& train = *spec.train;
  const auto manifest = read_manifest(spec.checkpoint.resume);
  if (!manifest.ok()) return mistake("checkpoint.resume: " + manifest.error().message);
  const RunIdentity run = {.model = train.model,
                           .blocks = trained_layout(train),
                           .data = {data.fingerprint(), data.tokens(), train.data.seq_len},
                           .seed = train.seed};
  const Outcome fits = check_resumable(*manifest, run, spec.checkpoint.resume);
  return fits.ok() ? fits : Outcome(mistake("checkpoint.resume: " + fits.error().message));
}

Outcome check_data(const JobSpec& spec) {
  const TrainSpec& train = *spec.train;
  const auto data = SampleReader::open(train.data, train.seed, train.model.vocab);
  if (!data.ok()) return mistake(data.error().message);
  for (const DataPart part : {DataPart::kValidation, DataPart::kTest}) {
    const auto evaluated = open_evaluation_part(train, *data, part);
    if (!evaluated.ok()) return mistake(evaluated.error().message);
  }
  return check_resumed(spec, *data);
}

// All nodes are this machine. Where it has GPUs the trainer's state is theirs.
Outcome check_memory(const JobSpec& spec) {
  if (is_accessible("/dev/nvidiactl")) return Ok{};
  const PlanSetting setting = setting_of(spec, false);
  const MemoryPlan plan = plan_memory(setting, trained_layout(*spec.train));
  return check_fit(plan, setting.world_size(), machine_memory_bytes());
}

}  // namespace

Outcome check_before_submit(const JobSpec& spec, const HomePaths& paths) {
  HP_TRY(check_programs(spec));
  HP_TRY(check_directories(spec, paths));
  HP_TRY(read_environment_files(spec.env_files));
  if (!spec.train) return check_command(spec);
  HP_TRY(check_memory(spec));
  HP_TRY(check_lora_base(*spec.train));
  return check_data(spec);
}

std::string describe_short_notice(const JobSpec& spec) {
  constexpr int64_t kEndOfTheJobS = 35;  // of its nodes, and a reserve
  const int64_t last_ms = spec.limits.last_checkpoint_ms;
  if (last_ms <= spec.slurm.warning_seconds * 1000) return "";
  return "limits.last_checkpoint gives the last checkpoint " + duration_text(last_ms) +
         ", and slurm.signal tells the job to end only " +
         duration_text(spec.slurm.warning_seconds * 1000) +
         " before its time limit; give slurm.signal: B:TERM@" +
         std::to_string((last_ms + 999) / 1000 + kEndOfTheJobS) +
         ", or lower limits.last_checkpoint";
}

Outcome check_before_slurm_submit(const JobSpec& spec, const HomePaths& paths,
                                  const std::string& job_file) {
  HP_TRY(check_programs(spec));
  HP_TRY(check_directories(spec, paths));
  if (!spec.slurm.container.image.empty()) return Ok{};
  if (!spec.train) return check_own_program(spec, job_file);
  HP_TRY(check_lora_base(*spec.train));
  return check_data(spec);
}

}  // namespace hpctl
