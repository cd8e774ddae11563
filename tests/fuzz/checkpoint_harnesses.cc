// SPDX-License-Identifier: Apache-2.0
// Checkpoints: what is read from a disk that others write, and from ranks that go on.
#include <algorithm>
#include <map>

#include "common/base/file.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/properties.h"
#include "tests/fuzz/scratch.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/arch/hf_config.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/manifest_format.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/shard_writer.h"
#include "trainer/state/position.h"

namespace hpctl::fuzz {
namespace {

// ---- safetensors: a whole file ------------------------------------------------------------------

void run_safetensors(std::string_view input) {
  const MemoryFile on_disk(input);
  const auto file = SafetensorsFile::open(on_disk.path());
  if (!file.ok()) return require_explained(file.error(), on_disk.path());
  std::vector<SafetensorsTensor> tensors;
  uint64_t data_bytes = 0;
  for (const auto& [name, tensor] : file->tensors()) {
    require(tensor.begin <= tensor.end && tensor.end <= input.size(), "data outside the file");
    data_bytes += tensor.end - tensor.begin;
    std::string values(tensor.end - tensor.begin, '\0');
    require(file->read(tensor, 0, values.data(), values.size()).ok(), "data that cannot be read");
    tensors.push_back(tensor);
  }
  const std::string header = safetensors_header({}, tensors).substr(8);
  const auto again = parse_safetensors_header(header, data_bytes, "again");
  require(again.ok() && again->size() == tensors.size(), "its own header is not read: " + header);
  for (const SafetensorsTensor& tensor : tensors) {
    const auto found = again->find(tensor.name);
    require(found != again->end() && found->second.shape == tensor.shape &&
                found->second.dtype == tensor.dtype && found->second.begin == tensor.begin,
            "written, it is another tensor: " + header);
  }
}

std::vector<std::string> safetensors_seeds() {
  const std::vector<SafetensorsTensor> tensors = {{"embed/param", "F32", {2, 3}, 0, 24},
                                                  {"head/param", "BF16", {4}, 24, 32},
                                                  {"none", "U8", {0}, 32, 32}};
  return {safetensors_header({{"format", "hpctl.shard.1"}}, tensors) + std::string(32, 'x'),
          safetensors_header({}, {})};
}

// ---- manifest and receipt -----------------------------------------------------------------------

// The input is sealed here: damage by chance never gets past the checksum, malice does.
void run_manifest(std::string_view input) {
  const std::string text = std::string(input) + manifest_seal(input);
  const auto manifest = manifest_from_text(text, "manifest.json");
  if (!manifest.ok()) return require_explained(manifest.error(), "manifest.json");
  require(manifest_problem(*manifest).empty(), "a manifest with a problem");
  const auto written = to_manifest_text(*manifest);
  if (!written.ok()) return require_explained(written.error());
  const auto again = manifest_from_text(*written, "again");
  require(again.ok(), "its own manifest is not read: " +
                          (again.ok() ? "" : again.error().message + "\n" + *written));
  const auto twice = to_manifest_text(*again);
  require(twice.ok() && *twice == *written, "written, it is another manifest");
}

// `cut`: as SyntheticSave's.
SyntheticSave some_save(uint64_t cut) {
  return {scratch() + "/save", {40, 3}, 3, 7, 2, {{5, 9}}, cut};
}

std::vector<std::string> manifest_seeds() {
  std::vector<std::string> seeds;
  for (const uint64_t cut : {0, 1}) {
    const SyntheticSave save = some_save(cut);
    require(remove_tree(save.checkpoint_dir).ok() && save_synthetic(save).ok(), "cannot save");
    const auto text = read_file(save.checkpoint_dir + "/" + save.ref.name() + "/manifest.json");
    require(text.ok(), "no manifest");
    seeds.push_back(text->substr(0, text->size() - kManifestSealBytes));
  }
  return seeds;
}

void run_receipt(std::string_view input) {
  const auto receipt = decode_receipt(std::string(input));
  if (!receipt.ok()) return require_explained(receipt.error());
  for (const ShardEntry& entry : receipt->entries) {
    require(!entry.range.empty() && entry.range.begin >= 0, "an empty range");
    require(entry.slice < static_cast<int32_t>(receipt->slices.size()), "an unknown slice");
  }
}

std::vector<std::string> receipt_seeds() {
  std::vector<std::string> seeds;
  for (const uint64_t cut : {0, 1}) {
    const SyntheticSave save = some_save(cut);
    require(remove_tree(save.checkpoint_dir).ok(), "cannot empty a directory");
    const auto receipt = write_synthetic_shard(save, 1);
    require(receipt.ok(), "no receipt");
    seeds.push_back(encode_receipt(*receipt));
  }
  return seeds;
}

// ---- what a sealed state has beside it ----------------------------------------------------------

void run_slot_notes(std::string_view input) {
  const auto notes = decode_slot_notes(input);
  if (!notes.ok()) return require_explained(notes.error());
  const std::string bytes = encode(*notes);
  require(bytes.size() <= input.size(), "more than was read");
  const auto again = decode_slot_notes(bytes);
  require(again.ok() && encode(*again) == bytes, "written, they are other notes");
}

std::vector<std::string> slot_notes_seeds() {
  SlotNotes notes;
  notes.position.step = 7;
  notes.position.sample_cursor = 56;
  notes.position.skipped = {{3, 5}, {9, 10}};
  notes.position.stability.losses = {2.5, 2.25};
  notes.position.stability.grad_norms = {1, 2};
  notes.environment = {{"blas", "openblas"}, {"libtorch", "1.13.1"}};
  notes.world_size = 4;
  notes.data = {"1f2e", 35'149, 32};
  return {encode(notes), encode(SlotNotes{})};
}

// ---- Hugging Face -------------------------------------------------------------------------------

void run_hugging_face(std::string_view input) {
  require_round_trip(
      input, [](const std::string& text) { return hf_config_from_text(text, "config.json"); },
      [](const HfConfig& config) {
        const ModelSpec& model = config.model;
        require(model.dim > 0 && model.layers > 0 && model.heads > 0 && model.vocab > 0,
                "a model without size");
        require(model.head_size() > 0, "heads of no size");
        return to_hf_config_text(config);
      },
      "config.json");
}

std::vector<std::string> hugging_face_seeds() {
  HfConfig llama;
  llama.model = synthetic_model();
  llama.max_len = llama.model.max_positions = 128;
  llama.dtype = "bfloat16";
  HfConfig scaled = llama;
  scaled.model.rope_scaling = {8, 1, 4, 8192};
  HfConfig gpt = llama;
  gpt.model.arch = Arch::gpt;
  gpt.model.kv_heads = gpt.model.heads;
  HfConfig free = llama;
  free.model.head_dim = 2 * llama.model.head_size();
  return {to_hf_config_text(free), to_hf_config_text(llama), to_hf_config_text(scaled),
          to_hf_config_text(gpt)};
}

}  // namespace

std::vector<Harness> checkpoint_harnesses() {
  return {{"safetensors", run_safetensors, safetensors_seeds},
          {"manifest", run_manifest, manifest_seeds},
          {"receipt", run_receipt, receipt_seeds},
          {"slot_notes", run_slot_notes, slot_notes_seeds},
          {"hugging_face", run_hugging_face, hugging_face_seeds}};
}

}  // namespace hpctl::fuzz
