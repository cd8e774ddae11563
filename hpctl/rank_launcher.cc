// SPDX-License-Identifier: Apache-2.0
#include "hpctl/rank_launcher.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "common/base/join.h"
#include "common/process/python_command.h"

namespace hpctl {
namespace {

// Options that take no value, without dashes in front and with _ for -.
constexpr std::array<std::string_view, 8> kTorchrunFlags = {
    "standalone", "m", "module", "no_python", "run_path", "use_env", "virtual_local_rank", "h"};
constexpr std::array<std::string_view, 9> kDeepspeedFlags = {
    "module",      "no_python",        "no_local_rank",      "no_ssh",  "no_ssh_check",
    "force_multi", "elastic_training", "bind_cores_to_rank", "save_pid"};
constexpr std::array<std::string_view, 15> kAccelerateFlags = {
    "multi_gpu", "cpu",          "mps",       "tpu",           "use_fsdp",
    "m",         "module",       "no_python", "use_deepspeed", "use_megatron_lm",
    "ipex",      "same_network", "debug",     "quiet",         "q"};

struct LauncherKind {
  std::string_view name;
  std::string_view program;
  std::string_view module;  // of python -m
  std::span<const std::string_view> flags;
};
constexpr LauncherKind kLaunchers[] = {
    {"torchrun", "torchrun", "torch.distributed.run", kTorchrunFlags},
    {"torch.distributed.launch", "", "torch.distributed.launch", kTorchrunFlags},
    {"accelerate launch", "accelerate", "accelerate.commands.launch", kAccelerateFlags},
    {"deepspeed", "deepspeed", "deepspeed.launcher.runner", kDeepspeedFlags},
};

using Words = std::vector<std::string>;

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

const LauncherKind* find_kind(std::string_view LauncherKind::*field, std::string_view name) {
  for (const LauncherKind& kind : kLaunchers) {
    if (!(kind.*field).empty() && kind.*field == name) return &kind;
  }
  return nullptr;
}

// A launcher, the Python that it starts scripts with, and its own arguments.
struct Launch {
  const LauncherKind* kind = nullptr;
  Words python;
  Words arguments;
};

// The first word after `uv run` and its options; 0 without them.
size_t place_of_program(const Words& command) {
  if (command.size() < 3 || file_name(command[0]) != "uv" || command[1] != "run") return 0;
  size_t at = 2;
  while (at + 1 < command.size() && command[at].starts_with('-')) ++at;
  return at;
}

std::string python_beside(const std::string& program) {
  const size_t slash = program.rfind('/');
  return slash == std::string::npos ? "python3" : program.substr(0, slash) + "/python";
}

Launch find_launch(const Words& command) {
  if (command.empty()) return {};
  const auto program = command.begin() + static_cast<std::ptrdiff_t>(place_of_program(command));
  Launch launch;
  launch.python.assign(command.begin(), program);
  if (const auto python = python_command({program, command.end()})) {
    const bool is_module = python->main == PythonMain::kModule;
    if (python->main == PythonMain::kCode) return {};
    launch.kind = is_module ? find_kind(&LauncherKind::module, python->target)
                            : find_kind(&LauncherKind::program, file_name(python->target));
    launch.python.insert(launch.python.end(), python->interpreter.begin(),
                         python->interpreter.end());
    launch.arguments = python->arguments;
    if (is_module) return launch;
  } else {
    launch.kind = find_kind(&LauncherKind::program, file_name(*program));
    launch.python.push_back(python_beside(*program));
    launch.arguments.assign(program + 1, command.end());
  }
  if (launch.kind == nullptr || launch.kind->program != "accelerate") return launch;
  // accelerate has other commands, which start no rank.
  if (launch.arguments.empty() || launch.arguments[0] != "launch") return {};
  launch.arguments.erase(launch.arguments.begin());
  return launch;
}

// "--nproc-per-node=8" -> nproc_per_node.
std::string option_name(const std::string& word) {
  const size_t begin = std::min(word.find_first_not_of('-'), word.size());
  std::string name = word.substr(begin, word.find('=') - begin);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool is_digits(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

RankLauncher read_launch(const Launch& launch) {
  RankLauncher result{std::string(launch.kind->name), "", {}};
  const Words& words = launch.arguments;
  bool is_module = false;
  bool is_python = true;
  size_t at = 0;
  for (; at < words.size() && words[at].size() > 1 && words[at].starts_with('-'); ++at) {
    const std::string name = option_name(words[at]);
    const size_t equals = words[at].find('=');
    const bool is_flag = std::find(launch.kind->flags.begin(), launch.kind->flags.end(), name) !=
                         launch.kind->flags.end();
    std::string value = equals == std::string::npos ? "" : words[at].substr(equals + 1);
    if (equals == std::string::npos && !is_flag && at + 1 < words.size()) value = words[++at];
    is_module = is_module || name == "m" || name == "module";
    is_python = is_python && name != "no_python";
    const bool counts = name == "nproc_per_node" || name == "num_gpus";
    if (counts && is_digits(value)) result.workers = value;
  }
  if (at >= words.size()) return result;
  if (is_python) result.command = launch.python;
  if (is_python && is_module) result.command.emplace_back("-m");
  result.command.insert(result.command.end(), words.begin() + static_cast<std::ptrdiff_t>(at),
                        words.end());
  return result;
}

constexpr std::array<std::string_view, 5> kShells = {"bash", "sh", "dash", "zsh", "ksh"};

// What stands in front of a command's name in a shell, and is followed by the name.
constexpr std::array<std::string_view, 8> kPrefixes = {"exec", "time", "then", "do",
                                                       "else", "if",   "!",    "{"};

template <size_t N>
bool is_word_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The text of `bash -c TEXT`, `bash -euo pipefail -c TEXT`; "" = there is none.
std::string shell_text(const Words& command) {
  if (command.empty() || !is_word_of(file_name(command[0]), kShells)) return "";
  for (size_t i = 1; i + 1 < command.size(); ++i) {
    const std::string& word = command[i];
    if (word.size() < 2 || word[0] != '-') return "";
    const bool is_short = word[1] != '-';
    if (is_short && word.find('c') != std::string::npos) return command[i + 1];
    if (is_short && word.back() == 'o') ++i;  // set -o NAME
  }
  return "";
}

// Splits the text of a shell into its simple commands, at unquoted operators and ends of lines. The
// words keep their quotes.
class ShellCommands {
 public:
  static std::vector<Words> split(std::string_view text) {
    ShellCommands commands;
    for (size_t i = 0; i < text.size(); ++i) i = commands.take(text, i);
    commands.end_command();
    return std::move(commands.commands_);
  }

 private:
  // Returns where the last character lies that belongs to this one.
  size_t take(std::string_view text, size_t i) {
    const char c = text[i];
    if (c == '\\' && i + 1 < text.size()) {
      if (text[i + 1] == '\n') {
        end_word();
      } else {
        word_ += text.substr(i, 2);
      }
      return i + 1;
    }
    if (c == '\'' || c == '"') {
      const size_t end = std::min(text.find(c, i + 1), text.size() - 1);
      word_ += text.substr(i, end + 1 - i);
      return end;
    }
    if (c == '#' && word_.empty()) return std::min(text.find('\n', i), text.size()) - 1;
    if (c == ' ' || c == '\t') {
      end_word();
    } else if (std::string_view(";&|\n()").find(c) != std::string_view::npos) {
      end_command();
    } else {
      word_ += c;
    }
    return i;
  }
  void end_word() {
    if (!word_.empty()) command_.push_back(std::exchange(word_, ""));
  }
  void end_command() {
    end_word();
    if (!command_.empty()) commands_.push_back(std::exchange(command_, {}));
  }

  std::string word_;
  Words command_;
  std::vector<Words> commands_;
};

// "OMP_NUM_THREADS=4" in front of a command.
bool is_assignment(const std::string& word) {
  const size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 &&
         word.substr(0, equals).find_first_of("-/$'\"") == std::string::npos;
}

std::optional<RankLauncher> find_in_shell(const std::string& text) {
  for (Words& words : ShellCommands::split(text)) {
    const auto first = std::find_if(words.begin(), words.end(), [](const std::string& word) {
      return !is_assignment(word) && !is_word_of(word, kPrefixes);
    });
    words.erase(words.begin(), first);
    const Launch launch = find_launch(words);
    if (launch.kind == nullptr) continue;
    RankLauncher launcher = read_launch(launch);
    launcher.in_shell = true;
    return launcher;
  }
  return std::nullopt;
}

// As a line of job.yaml.
std::string command_line_of(const Words& command) {
  YAML::Emitter out;
  out << YAML::Flow << command;
  return "command: " + std::string(out.c_str());
}

std::string describe_replacement(const RankLauncher& launcher) {
  if (launcher.command.empty()) return "name the program itself in workload.command";
  if (!launcher.in_shell) return "write " + command_line_of(launcher.command);
  return "write `" + join(launcher.command, " ") + "` in place of " + launcher.name +
         " in the text of the shell";
}

}  // namespace

std::optional<RankLauncher> find_rank_launcher(const std::vector<std::string>& command) {
  if (const std::string text = shell_text(command); !text.empty()) return find_in_shell(text);
  const Launch launch = find_launch(command);
  if (launch.kind == nullptr) return std::nullopt;
  return read_launch(launch);
}

Result<std::string> check_rank_launcher(const JobSpec& spec) {
  const auto launcher = find_rank_launcher(spec.command);
  if (!launcher) return std::string();
  const std::string line = describe_replacement(*launcher);
  if (spec.workers_per_node > 1) {
    return Error{ErrorCode::kInvalidArgument,
                 "workload.command: hpctl starts every rank, so it would start " + launcher->name +
                     " " + std::to_string(spec.workers_per_node) +
                     " times on each node, and each of them the ranks of a node; " + line +
                     ", or keep " + launcher->name + " with workers_per_node: 1"};
  }
  const std::string workers = launcher->workers.empty() ? "auto" : launcher->workers;
  return "workload.command starts " + launcher->name +
         ", so hpctl sees no rank, only launchers; to have it start the ranks, " + line +
         " and workers_per_node: " + workers;
}

}  // namespace hpctl
