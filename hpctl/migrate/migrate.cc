// SPDX-License-Identifier: Apache-2.0
#include "hpctl/migrate/migrate.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "common/base/join.h"
#include "common/jobfile/job_yaml_keys.h"
#include "hpctl/migrate/apply_table.h"
#include "hpctl/migrate/arithmetic.h"
#include "hpctl/migrate/job_text.h"
#include "hpctl/migrate/nearest_preset.h"
#include "hpctl/migrate/read_input.h"
#include "hpctl/migrate/shell_words.h"

namespace hpctl::migrate {
namespace {

using enum Fate;

bool is_launch(const Document& document) {
  return document.tool == &slurm_tool() || document.tool == &launcher_tool();
}

// DeepSpeed's own keys count over the Trainer's defaults.
int rank_of(const Document& document) {
  if (is_launch(document)) return 0;
  if (document.tool == &deepspeed_tool()) return 1;
  return document.tool == &hf_trainer_tool() ? 2 : 3;
}

bool has_document(const Input& input, const Tool& tool) {
  return std::any_of(input.documents.begin(), input.documents.end(),
                     [&](const Document& document) { return document.tool == &tool; });
}

// One document for each program. An argument of a script counts over the same key of a file.
std::vector<Document> merged(const std::vector<Document>& documents) {
  std::vector<Document> result;
  for (const Document& document : documents) {
    const auto known = std::find_if(result.begin(), result.end(), [&](const Document& other) {
      return other.tool == document.tool;
    });
    if (known == result.end()) {
      result.push_back(document);
      continue;
    }
    const auto drop_keys = [](std::vector<Given>& values, const std::vector<Given>& stronger) {
      std::erase_if(values, [&](const Given& given) {
        return std::any_of(stronger.begin(), stronger.end(),
                           [&](const Given& other) { return other.key == given.key; });
      });
    };
    std::vector<Given> values = document.values;
    if (document.is_of_script && !known->is_of_script) drop_keys(known->values, values);
    if (!document.is_of_script && known->is_of_script) drop_keys(values, known->values);
    known->is_of_script = known->is_of_script && document.is_of_script;
    known->values.insert(known->values.end(), values.begin(), values.end());
  }
  return result;
}

// A file that the program reads and that was not given.
void check_named_files(const Input& input, Draft& draft) {
  for (const Document& document : input.documents) {
    const std::string toml = document.text_of("job.config_file");
    if (document.tool == &torchtitan_tool() && document.is_of_script && !toml.empty()) {
      draft.report(kImpossible, document.file, "the configuration is in " + toml + ": give it too");
    }
    const std::string named = document.text_of("deepspeed");
    if (document.tool == &hf_trainer_tool() && !named.empty() && named != "null" &&
        !has_document(input, deepspeed_tool())) {
      draft.report(kImpossible, document.file,
                   "DeepSpeed's configuration is in " + named + ": give it too");
    }
  }
}

// A program whose arguments no table knows: they may change what is trained.
void check_program(const Request& request, const Input& input, bool is_read, Draft& draft) {
  if (input.program.empty() || input.program_is_assumed || is_read) return;
  const auto is_file = [&](const std::string& word) {
    return std::any_of(request.files.begin(), request.files.end(), [&](const std::string& file) {
      return std::filesystem::path(file).filename() == std::filesystem::path(word).filename();
    });
  };
  size_t at = input.program.front().find("python") == std::string::npos ? 1 : 2;
  if (at == 2 && input.program.size() > 1 && input.program[1] == "-m") at = 3;
  std::string unread;
  for (; at < input.program.size(); ++at) {
    if (!is_file(input.program[at])) unread += " " + input.program[at];
  }
  if (unread.empty()) return;
  draft.report(kImpossible, input.program_source,
               "hpctl does not know what these arguments mean to the program:" + unread);
}

// A name that job.yaml takes.
std::string sanitized(std::string name) {
  for (char& c : name) {
    const bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_' || c == '.';
    if (!fits) c = '-';
  }
  constexpr size_t kLongest = 64;
  name = name.substr(0, kLongest);
  if (name.find_first_not_of("0123456789") == std::string::npos) name = "job-" + name;
  return name;
}

void set_name(const Request& request, Draft& draft) {
  const Value* given = draft.find("name");
  if (given != nullptr) {
    if (draft.is_given("name")) return;
    const Value value = *given;
    const auto name = YAML::Load(value.yaml).as<std::string>();
    draft.compute("name", yaml_text(sanitized(name)), value.source);
    return;
  }
  const std::filesystem::path first(request.files.front());
  draft.compute("name", yaml_text(sanitized(first.stem().string())),
                first.filename().string() + ": the name of the file");
}

void apply_given(const Request& request, Draft& draft) {
  for (const GivenValue& given : request.given) {
    const std::string key = given.key == "nodes" ? "nodes.count" : given.key;
    const std::span<const JobYamlKey> known = job_yaml_keys();
    if (std::none_of(known.begin(), known.end(),
                     [&](const JobYamlKey& candidate) { return candidate.path == key; })) {
      draft.report(kImpossible, given.origin, "no key of job.yaml; docs/job-yaml.md has all");
      continue;
    }
    draft.compute(key, given.text, given.origin);
  }
}

void take_hooks(const Input& input, Form form, Draft& draft) {
  for (const SetupLine& line : input.hooks) {
    if (form == Form::kTrain && line.text.starts_with("mkdir ")) {
      draft.report(kUnneeded, line.source, line.text);
      continue;
    }
    if (!line.is_known) {
      draft.report(kImpossible, line.source,
                   "what it does is known to the shell alone: " + line.text);
      continue;
    }
    draft.add_hook(line.text, line.source);
    draft.report(kChanged, line.source, "hooks.pre: on every node");
  }
}

// Of the transport between GPUs; others are for the program that the trainer replaces.
bool is_for_trainer(const std::string& name) {
  for (const std::string_view prefix : {"NCCL_", "FI_", "UCX_", "CUDA_", "OMP_", "GLOO_"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

void take_variables(const Input& input, bool for_trainer, Draft& draft) {
  for (const auto& [name, value] : input.variables) {
    if (for_trainer && !is_for_trainer(name)) {
      draft.report(kUnneeded, value.source, "of the program that the built-in trainer replaces");
      continue;
    }
    draft.set_variable(name, value.yaml, value.source);
    draft.report(kTaken, value.source, "env.set." + name);
  }
}

void report_lines(const Input& input, Draft& draft) {
  for (const ReportLine& line : input.impossible) {
    draft.report(kImpossible, line.source, line.text);
  }
  for (const ReportLine& line : input.unneeded) draft.report(kUnneeded, line.source, line.text);
}

struct Requirement {
  std::string_view key;
  std::string_view remedy;
};
constexpr Requirement kRequired[] = {
    {"workload.train.model.arch",
     "give the model's config.json too, or --set "
     "workload.train.model.preset=NAME"},
    {"workload.train.data.path", "--set workload.train.data.path=PATH"},
    {"workload.train.data.seq_len", "--set workload.train.data.seq_len=N"},
    {"workload.train.batch.global", "--set workload.train.batch.global=N"},
    {"workload.train.steps", "--set workload.train.steps=N"},
};

bool is_there(const Draft& draft, std::string_view key) {
  if (draft.find(key) != nullptr || draft.is_given(key)) return true;
  if (key == "workload.train.model.arch") {
    return draft.find("workload.train.model.preset") != nullptr;
  }
  if (key == "workload.train.data.path") return draft.find("workload.train.data.blend") != nullptr;
  // The arithmetic has told what it lacks.
  if (key == "workload.train.batch.global") return draft.number(Quantity::kMicroBatch).has_value();
  if (key == "workload.train.steps") return draft.number(Quantity::kEpochs).has_value();
  return false;
}

void check_required(const Request& request, Draft& draft) {
  for (const Requirement& required : kRequired) {
    if (is_there(draft, required.key)) continue;
    draft.report(kImpossible, join(request.files, ", "),
                 "no file says " + std::string(required.key) + ": " + std::string(required.remedy));
  }
}

// An architecture that was not found leaves dimensions that mean nothing.
void fill_train(const Request& request, const Input& input, Migration& result) {
  Draft& draft = result.draft;
  const bool has_trainer = has_document(input, hf_trainer_tool());
  check_named_files(input, draft);
  for (const Document& document : input.documents) {
    const auto unknown = apply_table(document, has_trainer, draft);
    result.unknown.insert(result.unknown.end(), unknown.begin(), unknown.end());
  }
  for (const SetupLine& line : input.setup) {
    draft.report(kUnneeded, line.source, "of the program that the built-in trainer replaces");
  }
  take_variables(input, true, draft);
  compute_values(draft);
  name_preset(draft);
  check_required(request, draft);
}

// "source DIR/bin/activate"; "" = another line.
std::string venv_of(const std::string& line) {
  constexpr std::string_view kEnd = "/bin/activate";
  const size_t begin = line.find_first_of(" \t");
  if (begin == std::string::npos || !line.ends_with(kEnd)) return "";
  const std::string path = line.substr(line.find_first_not_of(" \t", begin));
  const bool is_literal = path.find_first_of("$`\"' ") == std::string::npos;
  return is_literal ? path.substr(0, path.size() - kEnd.size()) : "";
}

void fill_command(const Request& request, const Input& input, Migration& result) {
  Draft& draft = result.draft;
  for (const Document& document : input.documents) {
    if (!is_launch(document)) {
      draft.report(kUnneeded, document.file, "the program reads its own configuration");
      continue;
    }
    const auto unknown = apply_table(document, false, draft);
    result.unknown.insert(result.unknown.end(), unknown.begin(), unknown.end());
  }
  take_variables(input, false, draft);
  std::string setup;
  for (const SetupLine& line : input.setup) {
    const std::string venv = venv_of(line.text);
    if (!venv.empty()) {
      draft.compute("env.kind", "venv", line.source);
      draft.compute("env.path", yaml_text(venv), line.source);
      draft.report(kTaken, line.source, "env.path: " + venv);
      continue;
    }
    setup += line.text + " && ";
    draft.report(kChanged, line.source, "in workload.command, before the program");
  }
  compute_values(draft);
  if (input.program.empty()) {
    draft.report(kImpossible, join(request.files, ", "),
                 "no file starts a program: give the script that does");
    return;
  }
  draft.report(setup.empty() && input.program_is_known ? kTaken : kChanged, input.program_source,
               "workload.command: " + input.program.front() + " …, without its launcher");
  if (setup.empty() && input.program_is_known) {
    return draft.set_command(input.program, input.program_source);
  }
  std::string line = setup + "exec";
  for (const std::string& word : input.program) {
    line += " " + shell_quoted({word, word.find_first_of("$`") == std::string::npos});
  }
  draft.set_command({"bash", "-lc", line}, input.program_source);
}

Form form_of(const Request& request, const Input& input) {
  if (request.form != Form::kAuto) return request.form;
  const bool has_training = std::any_of(input.documents.begin(), input.documents.end(),
                                        [](const Document& d) { return !is_launch(d); });
  return has_training ? Form::kTrain : Form::kCommand;
}

}  // namespace

Result<Migration> migrate_files(const Request& request) {
  Input input;
  for (const std::string& file : request.files) HP_TRY(read_input(file, input));
  const bool program_is_read = std::any_of(input.documents.begin(), input.documents.end(),
                                           [](const Document& d) { return d.is_of_script; });
  input.documents = merged(input.documents);
  std::stable_sort(input.documents.begin(), input.documents.end(),
                   [](const Document& a, const Document& b) { return rank_of(a) < rank_of(b); });
  Migration result;
  result.form = form_of(request, input);
  Draft& draft = result.draft;
  report_lines(input, draft);
  apply_given(request, draft);
  if (result.form == Form::kTrain) {
    check_program(request, input, program_is_read, draft);
    fill_train(request, input, result);
  } else {
    fill_command(request, input, result);
  }
  take_hooks(input, result.form, draft);
  set_name(request, draft);
  if (!draft.is_possible() || !result.unknown.empty()) return result;
  JobText job = write_job(draft, request.directory,
                          "Written by `hpctl migrate` from " + join(request.files, ", ") + ".");
  for (const std::string& problem : job.problems) draft.report(kImpossible, "job.yaml", problem);
  if (!job.spec) return result;
  result.text = std::move(job.text);
  result.spec = std::move(job.spec);
  return result;
}

}  // namespace hpctl::migrate
