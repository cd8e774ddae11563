// SPDX-License-Identifier: Apache-2.0
#include "hpctl/model_directory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <ostream>
#include <set>
#include <utility>

#include "common/base/checksum.h"
#include "common/base/file.h"
#include "common/job/job_spec.h"
#include "common/job/lineage.h"
#include "hpctl/interrupt_flag.h"
#include "trainer/arch/hf_config.h"
#include "trainer/checkpoint/huggingface.h"

namespace hpctl {
namespace {

constexpr size_t kMostConfigBytes = 1U << 20;
constexpr size_t kNameDigits = 16;
constexpr const char* kImportedStep = "step-0.g0";

std::string models_of(const HomePaths& paths) { return paths.home() + "/models"; }

Result<std::string> config_text_of(const std::string& directory) {
  auto text = read_file(directory + "/config.json", kMostConfigBytes);
  if (text.ok()) return text;
  return Error{ErrorCode::kInvalidArgument,
               text.error().message + "; name the directory of a Hugging Face model, with " +
                   "config.json and *.safetensors (hf download MODEL --local-dir DIR)"};
}

int64_t changed_ms(const struct stat& st) {
  return int64_t{st.st_mtim.tv_sec} * 1000 + st.st_mtim.tv_nsec / 1'000'000;
}

// Changes when the model does.
Result<std::string> hash_of(const std::string& directory) {
  HP_TRY_ASSIGN(const std::string config, config_text_of(directory));
  HP_TRY_ASSIGN(std::vector<std::string> names, list_directory(directory));
  std::sort(names.begin(), names.end());
  Sha256 sha;
  sha.update(config);
  for (const std::string& name : names) {
    struct stat st {};
    if (!name.ends_with(".safetensors")) continue;
    if (::stat((directory + "/" + name).c_str(), &st) != 0) {
      return errno_error("cannot look at " + directory + "/" + name);
    }
    sha.update(name + " " + std::to_string(st.st_size) + " " + std::to_string(changed_ms(st)) +
               "\n");
  }
  return sha.hex_digest().substr(0, kNameDigits);
}

// Somebody else may be importing the same model now.
Outcome import_once(const std::string& from, const std::string& to, const Terminal& terminal) {
  const std::string step = to + "/" + kImportedStep;
  HP_TRY_ASSIGN(const bool is_there, has_manifest(step));
  if (is_there) return Ok{};
  terminal.err << "hpctl: model " << printable(from) << " is imported into " << printable(to)
               << std::endl;
  const InterruptFlag flag;
  const auto imported = import_huggingface(from, to, InterruptFlag::raised);
  if (imported.ok()) return Ok{};
  const auto is_there_now = has_manifest(step);
  return is_there_now.ok() && *is_there_now ? Outcome(Ok{}) : Outcome(imported.error());
}

// Whether the job goes on from a checkpoint that is there.
Result<bool> has_own_checkpoint(const CheckpointSpec& checkpoint) {
  if (checkpoint.dir.empty()) return false;
  HP_TRY_ASSIGN(const auto newest, latest_valid_checkpoint(checkpoint.dir, {}));
  return newest.has_value();
}

// checkpoint.resume of every job of the home: of local ones, of Slurm's, and of those that are just
// being submitted. Each has a directory of its own.
Result<std::set<std::string>> resumed_paths(const HomePaths& paths) {
  HP_TRY_ASSIGN(const auto names, list_directory_if_there(paths.jobs()));
  std::set<std::string> resumed;
  for (const std::string& name : names) {
    HP_TRY_ASSIGN(const auto text, read_file_if_there(paths.jobs() + "/" + name + "/job.json"));
    if (!text) continue;
    HP_TRY_ASSIGN(const JobSpec spec, job_spec_from_json(*text));
    resumed.insert(spec.checkpoint.resume);
  }
  return resumed;
}

}  // namespace

Result<ModelSpec> read_model_directory(const std::string& directory) {
  HP_TRY_ASSIGN(const std::string text, config_text_of(directory));
  HP_TRY_ASSIGN(const HfConfig config, hf_config_from_text(text, directory + "/config.json"));
  return config.model;
}

Outcome import_model(JobSpec& spec, const HomePaths& paths, const Terminal& terminal) {
  if (!spec.train || spec.train->model_from.empty()) return Ok{};
  const std::string from = std::exchange(spec.train->model_from, "");
  if (spec.train->lora.on() || spec.checkpoint.resume != "latest") return Ok{};
  HP_TRY_ASSIGN(const bool goes_on, has_own_checkpoint(spec.checkpoint));
  if (goes_on) return Ok{};
  HP_TRY_ASSIGN(const std::string hash, hash_of(from));
  const std::string to = models_of(paths) + "/" + hash;
  HP_TRY(make_directories(models_of(paths)));
  HP_TRY(import_once(from, to, terminal));
  // In use from now on, though no record names it yet.
  if (::utimensat(AT_FDCWD, to.c_str(), nullptr, 0) != 0) {
    return errno_error("cannot mark " + to + " as used");
  }
  spec.checkpoint.resume = to + "/" + kImportedStep;
  return Ok{};
}

Result<std::vector<std::string>> find_unused_models(const HomePaths& paths, int64_t since_wall_ms) {
  HP_TRY_ASSIGN(const auto names, list_directory_if_there(models_of(paths)));
  std::vector<std::string> unused;
  if (names.empty()) return unused;
  HP_TRY_ASSIGN(const std::set<std::string> resumed, resumed_paths(paths));
  for (const std::string& name : names) {
    const std::string directory = models_of(paths) + "/" + name;
    struct stat st {};
    if (::stat(directory.c_str(), &st) != 0 || changed_ms(st) > since_wall_ms) continue;
    if (!resumed.contains(directory + "/" + kImportedStep)) unused.push_back(directory);
  }
  return unused;
}

}  // namespace hpctl
