// SPDX-License-Identifier: Apache-2.0
#include "hpctl/migrate/read_input.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "common/base/file.h"
#include "hpctl/migrate/flat_values.h"
#include "hpctl/migrate/launch_line.h"
#include "hpctl/migrate/shell_script.h"
#include "hpctl/migrate/shell_words.h"

namespace hpctl::migrate {
namespace {

constexpr size_t kMostFileBytes = 1U << 20;

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool has_key(const std::vector<Given>& values, std::string_view prefix) {
  return std::any_of(values.begin(), values.end(),
                     [&](const Given& given) { return given.key.starts_with(prefix); });
}

// The program whose table has the most of the keys; nullptr = none has any.
const Tool* tool_of(const std::vector<Given>& values, std::initializer_list<const Tool*> choices) {
  const Tool* best = nullptr;
  ptrdiff_t most = 0;
  for (const Tool* tool : choices) {
    const auto known = std::count_if(values.begin(), values.end(), [&](const Given& given) {
      return find_row(*tool, given.key) != nullptr;
    });
    if (known > most) {
      best = tool;
      most = known;
    }
  }
  return best;
}

Error not_known(const std::string& path) {
  return {ErrorCode::kInvalidArgument,
          path +
              ": of no program that hpctl knows; it reads TorchTitan's TOML, ds_config.json, "
              "config.json, TrainingArguments, argument lists and batch scripts"};
}

Outcome add_values(const std::string& path, Result<std::vector<Given>> values,
                   std::initializer_list<const Tool*> choices, Input& input) {
  HP_TRY_ASSIGN(std::vector<Given> read, std::move(values));
  const Tool* tool = tool_of(read, choices);
  if (tool == nullptr) return not_known(path);
  input.documents.push_back({tool, std::string(file_name(path)), std::move(read)});
  return Ok{};
}

// TorchTitan's options have a dot in them, TrainingArguments have no dashes in the table.
std::optional<Document> arguments_of(const std::vector<std::string>& words,
                                     const std::string& file) {
  std::vector<Given> values = values_of_words(words, file);
  if (values.empty()) return std::nullopt;
  const Tool* tool = tool_of(values, {&megatron_tool(), &fsdp_guide_tool()});
  if (has_key(values, "--num-attention-heads") || has_key(values, "--max_context_width")) {
    return Document{tool, file, std::move(values)};
  }
  for (Given& given : values) given.key = given.key.substr(2);
  if (has_key(values, "training.") || has_key(values, "job.")) {
    return Document{&torchtitan_tool(), file, std::move(values)};
  }
  if (has_key(values, "per_device_train_batch_size") || has_key(values, "output_dir")) {
    return Document{&hf_trainer_tool(), file, std::move(values)};
  }
  return std::nullopt;
}

class ScriptInput {
 public:
  ScriptInput(const std::string& path, Input& input) : file_(file_name(path)), input_(input) {}

  void read(const std::string& text) {
    ShellScript script = read_shell_script(text);
    slurm_.tool = &slurm_tool();
    slurm_.file = file_;
    read_directives(script);
    for (const auto& [line, why] : script.unreadable) {
      input_.impossible.push_back({at(line), why});
    }
    read_commands(script);
    read_exports(script);
    std::stable_sort(input_.setup.begin(), input_.setup.end(),
                     [](const SetupLine& a, const SetupLine& b) { return a.line < b.line; });
    input_.documents.push_back(std::move(slurm_));
  }

 private:
  std::string at(int line) const { return file_ + ":" + std::to_string(line); }

  void read_directives(const ShellScript& script) {
    for (const auto& [line, text] : script.directives) {
      ShellVariables none;
      std::vector<std::string> words;
      for (const std::string& raw : raw_words(text)) words.push_back(expand_whole(raw, none).text);
      for (size_t i = 0; i < words.size(); ++i) {
        if (words[i].size() < 2 || words[i][0] != '-') continue;
        const std::string* next = i + 1 < words.size() ? &words[i + 1] : nullptr;
        if (read_slurm_option(words[i], next, at(line), slurm_.values)) ++i;
      }
    }
  }

  void read_exports(const ShellScript& script) {
    for (const ShellVariable& variable : script.exports) {
      const std::string source = at(variable.line) + ": export " + variable.name;
      constexpr std::string_view kOurs =
          "MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|"
          "GROUP_RANK|TORCHELASTIC_RESTART_COUNT|TORCHELASTIC_MAX_RESTARTS|TORCHELASTIC_RUN_ID";
      if (is_one_of(variable.name, kOurs)) {
        input_.unneeded.push_back({source, "hpctl sets it for every worker"});
      } else if (variable.value.is_known) {
        input_.variables.emplace_back(variable.name, Value{variable.value.text, source, false});
      } else {
        input_.setup.push_back({variable.line,
                                "export " + variable.name + "=" + shell_quoted(variable.value),
                                source, false});
      }
    }
  }

  void read_commands(const ShellScript& script) {
    LaunchKind highest = LaunchKind::kNone;
    for (const ShellCommand& command : script.commands) {
      highest = std::max(highest, launch_kind(command));
    }
    for (const ShellCommand& command : script.commands) {
      const LaunchKind kind = launch_kind(command);
      if (kind != LaunchKind::kNone && kind == highest) {
        take_launch(command);
      } else {
        take_other(command);
      }
    }
    if (input_.program.empty() && !script.directives.empty()) {
      input_.impossible.push_back(
          {file_, "no line starts a program with srun, torchrun or python"});
    }
  }

  void take_launch(const ShellCommand& command) {
    if (!input_.program.empty() && !input_.program_is_assumed) {
      input_.impossible.push_back(
          {at(command.line), "a second program; a job has one, so make another job of it"});
      return;
    }
    LaunchLine line = split_launch(command, at(command.line));
    if (line.has_launcher) slurm_.values.push_back({"(launcher)", "true", {"true"}, "", false});
    slurm_.values.insert(slurm_.values.end(), line.srun.begin(), line.srun.end());
    if (!line.launcher.empty()) {
      input_.documents.push_back({&launcher_tool(), file_, std::move(line.launcher)});
    }
    input_.program.clear();
    input_.program_is_assumed = false;
    input_.program_source = at(command.line);
    for (const ShellWord& word : line.program) {
      input_.program.push_back(word.text);
      input_.program_is_known = input_.program_is_known && word.is_known;
    }
    const auto arguments = std::find_if(input_.program.begin(), input_.program.end(),
                                        [](const std::string& w) { return w.starts_with("--"); });
    const std::vector<std::string> words(arguments, input_.program.end());
    if (auto document = arguments_of(words, at(command.line))) {
      document->is_of_script = true;
      mark_unknown(command.words, document->values);
      input_.documents.push_back(std::move(*document));
    }
  }

  // Lines around the program.
  void take_other(const ShellCommand& command) {
    const bool is_srun = launch_kind(command) == LaunchKind::kSrunOther;
    std::vector<ShellWord> program = command.words;
    if (is_srun) program = split_launch(command, "").program;
    const std::string first = program.empty() ? "wait" : program[0].text;
    constexpr std::string_view kTalk =
        "set|echo|printf|date|pwd|hostname|nvidia-smi|env|scontrol|squeue|sleep|wait|exit|trap|"
        "shopt|which|cat|ls|unset|shift";
    constexpr std::string_view kShellOnly = "source|.|module|ml|conda|mamba|cd|ulimit|eval|pushd";
    SetupLine line = {command.line, "", at(command.line), true};
    for (const ShellWord& word : command.words) {
      line.text += (line.text.empty() ? "" : " ") + shell_quoted(word);
      line.is_known = line.is_known && word.is_known;
    }
    if (is_one_of(first, kTalk)) {
      input_.unneeded.push_back({line.source, line.text});
    } else if (is_srun) {
      input_.impossible.push_back({line.source, "a second program: " + line.text});
    } else if (is_one_of(first, kShellOnly)) {
      input_.setup.push_back(std::move(line));
    } else {
      input_.hooks.push_back(std::move(line));
    }
  }

  std::string file_;
  Input& input_;
  Document slurm_;
};

// A file of arguments alone: "--num-layers 32 \" and so on, with comments.
bool is_argument_list(const std::string& text) {
  ShellReader reader(text);
  const auto first = reader.next();
  return first && first->raw[0].starts_with("--");
}

Outcome read_argument_list(const std::string& path, const std::string& text, Input& input) {
  ShellVariables none;
  std::vector<std::string> words;
  for (const std::string& raw : raw_words(text)) words.push_back(expand_whole(raw, none).text);
  auto document = arguments_of(words, std::string(file_name(path)));
  if (!document) return not_known(path);
  const bool is_megatron = document->tool == &megatron_tool();
  if (input.program.empty() && (is_megatron || document->tool == &fsdp_guide_tool())) {
    input.program = {"python", is_megatron ? "pretrain_gpt.py" : "train.py"};
    input.program.insert(input.program.end(), words.begin(), words.end());
    input.program_source = std::string(file_name(path));
    input.program_is_assumed = true;
  }
  input.documents.push_back(std::move(*document));
  return Ok{};
}

}  // namespace

Outcome read_input(const std::string& path, Input& input) {
  HP_TRY_ASSIGN(const std::string text, read_file(path, kMostFileBytes));
  const std::string file(file_name(path));
  if (path.ends_with(".toml")) {
    HP_TRY(add_values(path, values_of_toml(text, file), {&torchtitan_tool()}, input));
    if (input.program.empty()) {
      input.program = {"python", "-m", "torchtitan.train",
                       "--job.config_file=" + std::filesystem::absolute(path).string()};
      input.program_source = file;
      input.program_is_assumed = true;
    }
    return Ok{};
  }
  if (path.ends_with(".json")) {
    return add_values(path, values_of_json(text, file),
                      {&deepspeed_tool(), &hf_config_tool(), &hf_trainer_tool()}, input);
  }
  if (path.ends_with(".yaml") || path.ends_with(".yml")) {
    if (text.starts_with("workload:") || text.find("\nworkload:") != std::string::npos) {
      return Error{ErrorCode::kInvalidArgument,
                   path + " is a job file of hpctl already: `hpctl submit " + path + "`"};
    }
    return add_values(path, values_of_yaml(text, file), {&hf_trainer_tool()}, input);
  }
  if (is_argument_list(text)) return read_argument_list(path, text, input);
  if (!text.starts_with("#!") && !path.ends_with(".sh") && !path.ends_with(".sbatch") &&
      !path.ends_with(".slurm")) {
    return not_known(path);
  }
  ScriptInput(path, input).read(text);
  return Ok{};
}

}  // namespace hpctl::migrate
