// SPDX-License-Identifier: Apache-2.0
#include "hpctl/migrate/launch_line.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "hpctl/migrate/flat_values.h"

namespace hpctl::migrate {
namespace {

struct ShortOption {
  char letter;
  std::string_view name;
};
constexpr ShortOption kShortOptions[] = {
    {'N', "--nodes"},
    {'n', "--ntasks"},
    {'J', "--job-name"},
    {'p', "--partition"},
    {'A', "--account"},
    {'t', "--time"},
    {'o', "--output"},
    {'e', "--error"},
    {'c', "--cpus-per-task"},
    {'w', "--nodelist"},
    {'x', "--exclude"},
    {'q', "--qos"},
    {'C', "--constraint"},
    {'d', "--dependency"},
    {'G', "--gpus"},
    {'D', "--chdir"},
    {'m', "--distribution"},
    {'W', "--wait"},
    {'K', "--kill-on-bad-exit"},
    {'l', "--label"},
    {'u', "--unbuffered"},
    {'k', "--no-kill"},
    {'O', "--overcommit"},
    {'s', "--oversubscribe"},
    {'L', "--licenses"},
};
constexpr std::string_view kSlurmFlags =
    "--label|--unbuffered|--no-kill|--overcommit|--oversubscribe|--exclusive|--contiguous|"
    "--requeue|--no-requeue|--kill-on-bad-exit|--container-mount-home|--no-container-mount-home|"
    "--auto-resume|--hpctl-resume";
constexpr std::string_view kLauncherFlags =
    "--standalone|--module|--no-python|--run-path|--multi-gpu|--use-deepspeed|--use-fsdp";

std::string_view last_part(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

bool is_python(std::string_view word) { return last_part(word).starts_with("python"); }

Given given_of(std::string key, const std::string& value, const std::string& source) {
  Given given;
  given.source = source + ": " + key;
  given.key = std::move(key);
  set_items(given, {value});
  return given;
}

// Where the launcher's own arguments begin; 0 = there is no launcher.
size_t launcher_length(const std::vector<ShellWord>& words, size_t at) {
  if (at >= words.size()) return 0;
  const std::string_view program = last_part(words[at].text);
  if (is_one_of(program, "torchrun|deepspeed")) return 1;
  if (program == "accelerate" && at + 1 < words.size() && words[at + 1].text == "launch") return 2;
  const bool is_module = is_python(program) && at + 2 < words.size() && words[at + 1].text == "-m";
  return is_module &&
                 is_one_of(words[at + 2].text, "torch.distributed.run|torch.distributed.launch")
             ? 3
             : 0;
}

std::string launcher_option(const std::string& word) {
  std::string name = word.substr(0, word.find('='));
  std::replace(name.begin(), name.end(), '_', '-');
  return name == "-m" ? "--module" : name;
}

}  // namespace

LaunchKind launch_kind(const ShellCommand& command) {
  const std::vector<ShellWord>& words = command.words;
  if (words.empty()) return LaunchKind::kNone;
  const size_t at = is_one_of(words[0].text, "exec|time|nohup") ? 1 : 0;
  if (at >= words.size()) return LaunchKind::kNone;
  if (last_part(words[at].text) == "srun") {
    const LaunchLine line = split_launch(command, "");
    const bool trains =
        line.has_launcher || (!line.program.empty() && is_python(line.program[0].text));
    return trains ? LaunchKind::kSrun : LaunchKind::kSrunOther;
  }
  if (launcher_length(words, at) > 0) return LaunchKind::kLauncher;
  return is_python(words[at].text) ? LaunchKind::kPython : LaunchKind::kNone;
}

bool read_slurm_option(const std::string& word, const std::string* next, const std::string& source,
                       std::vector<Given>& values) {
  const size_t equals = word.find('=');
  if (word.starts_with("--")) {
    const std::string name = word.substr(0, equals);
    if (equals != std::string::npos) {
      values.push_back(given_of(name, word.substr(equals + 1), source));
      return false;
    }
    const bool is_flag = is_one_of(name, kSlurmFlags) || next == nullptr;
    values.push_back(given_of(name, is_flag ? "true" : *next, source));
    return !is_flag;
  }
  const auto known =
      std::find_if(std::begin(kShortOptions), std::end(kShortOptions),
                   [&](const ShortOption& option) { return option.letter == word[1]; });
  if (known == std::end(kShortOptions)) {
    values.push_back(given_of(word, "true", source));  // an error: no table has it
    return false;
  }
  const bool is_flag = is_one_of(known->name, kSlurmFlags);
  const bool is_joined = word.size() > 2;
  const std::string value =
      is_joined ? word.substr(2) : (is_flag || next == nullptr ? "true" : *next);
  values.push_back(given_of(std::string(known->name), value, source));
  return !is_joined && !is_flag && next != nullptr;
}

void mark_unknown(const std::vector<ShellWord>& words, std::vector<Given>& values) {
  for (const ShellWord& word : words) {
    if (word.is_known) continue;
    for (Given& given : values) {
      for (const std::string& item : given.items) {
        if (word.text == item || word.text.ends_with("=" + item)) given.is_known = false;
      }
    }
  }
}

LaunchLine split_launch(const ShellCommand& command, const std::string& source) {
  const std::vector<ShellWord>& words = command.words;
  LaunchLine line;
  size_t at = is_one_of(words[0].text, "exec|time|nohup") ? 1 : 0;
  const auto next_of = [&](size_t i) {
    return i + 1 < words.size() ? &words[i + 1].text : nullptr;
  };
  if (at < words.size() && last_part(words[at].text) == "srun") {
    for (++at; at < words.size() && words[at].text.starts_with('-'); ++at) {
      if (read_slurm_option(words[at].text, next_of(at), source, line.srun)) ++at;
    }
  }
  const size_t length = launcher_length(words, at);
  line.has_launcher = length > 0;
  bool is_module = false;
  bool runs_python = true;
  if (line.has_launcher) {
    for (at += length; at < words.size() && words[at].text.starts_with('-'); ++at) {
      const std::string& word = words[at].text;
      const std::string name = launcher_option(word);
      const size_t equals = word.find('=');
      is_module = is_module || name == "--module";
      runs_python = runs_python && name != "--no-python";
      const bool is_flag = is_one_of(name, kLauncherFlags);
      std::string value = equals == std::string::npos ? "true" : word.substr(equals + 1);
      if (equals == std::string::npos && !is_flag && at + 1 < words.size()) {
        value = words[++at].text;
      }
      line.launcher.push_back(given_of(name, value, source));
    }
    if (runs_python) line.program.push_back({"python", true});
    if (is_module) line.program.push_back({"-m", true});
  }
  line.program.insert(line.program.end(),
                      words.begin() + static_cast<std::ptrdiff_t>(std::min(at, words.size())),
                      words.end());
  mark_unknown(words, line.srun);
  mark_unknown(words, line.launcher);
  return line;
}

}  // namespace hpctl::migrate
