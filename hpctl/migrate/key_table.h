// SPDX-License-Identifier: Apache-2.0
// What becomes of each key of another program's configuration. Every program has one table, with a
// row for each of its keys. The reader (apply_table.h), the report and docs/migrate.md all come
// from these rows. A key that has no row is an error, so nothing is dropped in silence.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/word_enum.h"

namespace hpctl::migrate {

enum class Fate { kTaken, kChanged, kUnneeded, kImpossible };
constexpr auto words_of(Fate) {
  return std::to_array<const char*>(
      {"taken", "taken with a change", "not needed here", "not possible"});
}

inline constexpr std::string_view kAlone = "!";

// A number from which arithmetic.h computes values of ours.
enum class Quantity {
  kNone,
  kNodes,
  kWorkersPerNode,
  kTasks,     // of the whole job
  kReplicas,  // of a sharded model
  kMicroBatch,
  kAccumulation,
  kGlobalBatch,
  kSteps,
  kSamples,
  kEpochs,
  kPeakLr,
  kMinLr,       // a learning rate
  kMinLrRatio,  // a part of the peak
  kWarmupSteps,
  kWarmupSamples,
  kWarmupRatio,     // of the steps
  kWarmupFraction,  // of the steps until the decay ends
  kDecayEnd,        // the step at which the decay ends
  kDecayEndSamples,
  kDecayRatio,   // the length of the decay, of the steps
  kDecayLength,  // in steps
  kDecayLengthSamples,
  kEvalInterval,
  kEvalBatches,
};

// One value of a file, or a default of its program.
struct Given {
  std::string key;                 // as its table writes it
  std::string text;                // of a list: its members, with commas between
  std::vector<std::string> items;  // the members of a list; else the text alone
  std::string source;              // "train.toml: optimizer.lr"
  bool is_default = false;         // the file does not have it
  bool is_known = true;            // false: a part of it is known to the shell alone
};

struct Tool;

// All values of one file that belong to one program.
struct Document {
  const Tool* tool = nullptr;
  std::string file;  // as messages name it
  std::vector<Given> values;
  // The arguments of a script's program, which count over a file that they name.
  bool is_of_script = false;

  // The text of a value; "" = the file does not have it.
  std::string text_of(std::string_view key) const {
    for (const Given& given : values) {
      if (given.key == key) return given.text;
    }
    return "";
  }
};

class Draft;

struct Row {
  std::string_view key;
  Fate fate = Fate::kTaken;
  std::string_view ours = {};  // the key of job.yaml
  std::string_view note = {};  // what changes, or why there is no such key
  // The program's default, where a job without the key would differ from ours.
  std::string_view initial = {};
  // The default counts only if the file has a key that begins with this; kAlone: only if no file
  // has arguments of Hugging Face's Trainer, which then decide.
  std::string_view initial_with = {};
  // Values with which the key does nothing, such as "1" of a degree of parallelism; with | between.
  std::string_view off = {};
  // "theirs=ours|theirs=ours"; "theirs=" is a value that needs no key of ours. Others are not
  // possible. Empty: the value is written as it is.
  std::string_view words = {};
  Quantity quantity = Quantity::kNone;
  // In place of all that: takes the value in its own way.
  void (*take)(const Given& given, const Document& document, Draft& draft) = nullptr;
};

constexpr Row unneeded(std::string_view key, std::string_view why) {
  return {.key = key, .fate = Fate::kUnneeded, .note = why};
}
constexpr Row impossible(std::string_view key, std::string_view why, std::string_view off = {}) {
  return {.key = key, .fate = Fate::kImpossible, .note = why, .off = off};
}

// What the program always does, for which it has no key, where our default differs.
struct Habit {
  std::string_view ours;
  std::string_view yaml;
  std::string_view why;
  // It counts only if the file has a key that begins with this.
  std::string_view with = {};
};

struct Tool {
  std::string_view name;  // "TorchTitan"
  std::string_view file;  // what its file is, for docs/migrate.md
  std::span<const Row> rows;
  std::span<const Habit> habits;
  // Called after all values: for what several keys decide together. nullptr = nothing is left.
  void (*finish)(const Document& document, Draft& draft);
};

const Tool& torchtitan_tool();
const Tool& deepspeed_tool();
const Tool& megatron_tool();
const Tool& fsdp_guide_tool();
const Tool& hf_config_tool();
const Tool& hf_trainer_tool();
const Tool& slurm_tool();     // #SBATCH lines and the options of srun
const Tool& launcher_tool();  // torchrun, and `python -m torch.distributed.run`

// In the order of docs/migrate.md.
std::span<const Tool* const> tools();
// A row of a section stands for all keys below it. nullptr = no such key.
const Row* find_row(const Tool& tool, std::string_view key);
// Whether `text` is one of the words of `list`, which has | between them.
bool is_one_of(std::string_view text, std::string_view list);

}  // namespace hpctl::migrate
