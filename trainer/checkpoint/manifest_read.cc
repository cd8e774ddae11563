// SPDX-License-Identifier: Apache-2.0
// Reads manifest.json as untrusted input: size, seal, types, ranges, and then every relation that
// manifest_problem states. Nothing here throws outward and nothing is believed before it is
// checked.
#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/file.h"
#include "common/base/printable.h"
#include "common/job/job_spec_json.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/manifest_format.h"
#include "trainer/checkpoint/shard_table.h"

namespace hpctl {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxI64 = std::numeric_limits<int64_t>::max();
constexpr uint64_t kMaxU64 = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kMaxU32 = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kMaxWorld = 1'000'000;
constexpr size_t kShownBytes = 500;  // of what is wrong: names in it are the document's
constexpr uint64_t kMaxExtent = uint64_t{1} << 48;
constexpr int64_t kMaxPiece = int64_t{1} << 40;  // elements

// Collects the first thing that is not as expected; a value read after that is a zero.
class Fields {
 public:
  const std::string& problem() const { return problem_; }
  bool good() const { return problem_.empty(); }

  const json& member(const json& object, const char* key) {
    static const json kNothing;
    if (object.is_object()) {
      if (const auto found = object.find(key); found != object.end()) return *found;
    }
    fail(key, "is missing");
    return kNothing;
  }
  uint64_t number(const json& value, const char* what, uint64_t maximum) {
    const auto found = whole_number<uint64_t>(value);
    if (found && *found <= maximum) return *found;
    fail(what, "is not a whole number in range");
    return 0;
  }
  uint64_t number_member(const json& object, const char* key, uint64_t maximum) {
    return number(member(object, key), key, maximum);
  }
  int64_t signed_member(const json& object, const char* key) {
    return static_cast<int64_t>(number_member(object, key, kMaxI64));
  }
  std::string text_member(const json& object, const char* key) {
    const json& value = member(object, key);
    if (value.is_string()) return value.get<std::string>();
    fail(key, "is not text");
    return "";
  }
  bool flag_member(const json& object, const char* key) {
    const json& value = member(object, key);
    if (!value.is_boolean()) fail(key, "is not true or false");
    return value.is_boolean() && value.get<bool>();
  }
  const json& list_member(const json& object, const char* key) {
    static const json kEmpty = json::array();
    const json& value = member(object, key);
    if (value.is_array()) return value;
    fail(key, "is not a list");
    return kEmpty;
  }
  // Fails unless `value` is a list of `size` elements.
  bool row(const json& value, const char* what, size_t size) {
    if (value.is_array() && value.size() == size) return true;
    fail(what, "has a malformed row");
    return false;
  }
  void fail(const char* what, const char* why) {
    if (problem_.empty()) problem_ = std::string(what) + " " + why;
  }

 private:
  std::string problem_;
};

TensorSlot read_tensor(Fields& fields, const json& document) {
  TensorSlot tensor;
  tensor.name = fields.text_member(document, "name");
  if (fields.text_member(document, "dtype") != "F32") fields.fail("dtype", "is not F32");
  tensor.numel = 1;
  for (const json& extent : fields.list_member(document, "shape")) {
    const auto value = static_cast<int64_t>(fields.number(extent, "shape", 1ULL << 48));
    tensor.shape.push_back(value);
    if (__builtin_mul_overflow(tensor.numel, value, &tensor.numel)) {
      fields.fail("shape", "is impossible");
      tensor.numel = 0;
    }
  }
  tensor.offset = fields.signed_member(document, "offset");
  tensor.no_decay = fields.flag_member(document, "no_decay");
  return tensor;
}

void read_layout(Fields& fields, const json& document, Manifest& m) {
  for (const json& item : fields.list_member(document, "blocks")) {
    Block block;
    block.name = fields.text_member(item, "name");
    block.numel = fields.signed_member(item, "numel");
    for (const json& tensor : fields.list_member(item, "tensors")) {
      block.tensors.push_back(read_tensor(fields, tensor));
      if (!fields.good()) return;
    }
    m.blocks.push_back(std::move(block));
    if (!fields.good()) return;
  }
}

void read_files(Fields& fields, const json& document, Manifest& m) {
  for (const json& item : fields.list_member(document, "files")) {
    ShardFile file;
    file.file = fields.text_member(item, "file");
    file.bytes = fields.number_member(item, "bytes", kMaxI64);
    file.crc32c = static_cast<uint32_t>(fields.number_member(item, "crc32c", kMaxU32));
    m.files.push_back(std::move(file));
    if (!fields.good()) return;
  }
}

std::vector<int64_t> read_extents(Fields& fields, const json& list) {
  std::vector<int64_t> extents;
  if (!list.is_array()) fields.fail("slices", "have a malformed row");
  for (const json& extent : list) {
    extents.push_back(static_cast<int64_t>(fields.number(extent, "slices", kMaxExtent)));
  }
  return extents;
}

// Adds the slices of block `b` to the manifest and to the tables of the files that hold them.
void read_block_slices(Fields& fields, const json& row, int32_t b, std::vector<ShardTable>& tables,
                       Manifest& m) {
  const json& slices = fields.list_member(row, "slices");
  const json& files = fields.list_member(row, "files");
  if (slices.size() != files.size()) fields.fail("ranges", "has slices without files");
  for (size_t i = 0; i < slices.size() && fields.good(); ++i) {
    if (!fields.row(slices[i], "slices", 3)) return;
    const TensorSlice slice{
        b, static_cast<int32_t>(fields.number(slices[i][0], "slices", kMaxU32 >> 1)),
        read_extents(fields, slices[i][1]), read_extents(fields, slices[i][2])};
    const uint64_t file = fields.number(files[i], "files", kMaxU32 >> 1);
    if (file >= tables.size()) fields.fail("ranges", "names an unknown file");
    if (!fields.good()) return;
    if (const auto problem = slice_problem(m.blocks, slice); !problem.empty()) {
      return fields.fail("slices:", problem.c_str());
    }
    tables[file].ranges.push_back(
        {b, {0, elements_of(slice)}, static_cast<int32_t>(m.slices.size())});
    m.slices.push_back(slice);
  }
}

// Adds the ranges of block `b` to the tables of the files that hold them.
void read_block_ranges(Fields& fields, const json& row, int32_t b,
                       std::vector<ShardTable>& tables) {
  const json& ends = fields.list_member(row, "ends");
  const json& files = fields.list_member(row, "files");
  if (ends.size() != files.size()) fields.fail("ranges", "has ends without files");
  int64_t begin = 0;
  for (size_t i = 0; i < ends.size() && fields.good(); ++i) {
    const auto end = static_cast<int64_t>(fields.number(ends[i], "ends", kMaxI64));
    const uint64_t file = fields.number(files[i], "files", kMaxU32 >> 1);
    if (file >= tables.size()) fields.fail("ranges", "names an unknown file");
    if (fields.good()) tables[file].ranges.push_back({b, {begin, end}});
    begin = end;
  }
}

void read_ranges(Fields& fields, const json& document, Manifest& m) {
  std::vector<ShardTable> tables;
  for (const json& item : fields.list_member(document, "files")) {
    tables.push_back({.data = fields.number_member(item, "data", kMaxI64),
                      .ranges = {},
                      .sums = fields.text_member(item, "sums")});
  }
  int32_t block = 0;
  const bool may_have_slices = document.at("version") != kManifestOfIntervals;
  for (const json& row : fields.list_member(document, "ranges")) {
    if (may_have_slices && row.is_object() && row.contains("slices")) {
      read_block_slices(fields, row, block++, tables, m);
    } else {
      read_block_ranges(fields, row, block++, tables);
    }
    if (!fields.good()) return;
  }
  const int64_t piece = fields.signed_member(document, "piece_elements");
  if (piece < kAlignElements || piece > kMaxPiece) fields.fail("piece_elements", "is impossible");
  for (size_t f = 0; f < tables.size() && fields.good(); ++f) {
    const auto entries =
        entries_of_table(tables[f], static_cast<int32_t>(f), m.kinds().size(), piece);
    if (!entries) return fields.fail("sums", "do not fit the ranges of their file");
    m.shards.insert(m.shards.end(), entries->begin(), entries->end());
  }
  sort_entries(m.shards);
}

void read_rows(Fields& fields, const json& document, Manifest& m) {
  if (fields.member(document, "shard_columns") != json(kShardColumns)) {
    fields.fail("shard_columns", "do not fit this version");
  }
  for (const json& row : fields.list_member(document, "shards")) {
    if (!fields.good() || !fields.row(row, "shards", kShardColumns.size())) return;
    const auto cell = [&](size_t column, uint64_t maximum) {
      return fields.number(row[column], kShardColumns[column], maximum);
    };
    ShardEntry e;
    e.block = static_cast<int32_t>(cell(0, kMaxU32 >> 1));
    e.kind = static_cast<StateKind>(cell(1, kStateKinds.size() - 1));
    e.range = {static_cast<int64_t>(cell(2, kMaxI64)), static_cast<int64_t>(cell(3, kMaxI64))};
    e.file = static_cast<int32_t>(cell(4, kMaxU32 >> 1));
    e.offset = cell(5, kMaxI64);
    const uint64_t bytes = cell(6, kMaxI64);
    e.crc32c = static_cast<uint32_t>(cell(7, kMaxU32));
    if (e.range.empty() || bytes != static_cast<uint64_t>(e.range.size()) * sizeof(float)) {
      fields.fail("shards", "has a row whose bytes do not fit its elements");
    }
    m.shards.push_back(e);
  }
}

void read_labels(Fields& fields, const json& document, Manifest& m) {
  try {
    m.model = fields.member(document, "model").get<ModelSpec>();
    if (document.contains("lora")) m.lora = document.at("lora").get<LoraSpec>();
    m.environment =
        fields.member(document, "environment").get<std::map<std::string, std::string>>();
  } catch (const json::exception& e) {
    fields.fail("model, lora or environment", (std::string("is malformed: ") + e.what()).c_str());
  }
  m.exact = fields.flag_member(document, "exact");
  m.inexact_reason = fields.text_member(document, "inexact_reason");
  m.created_wall_ms = fields.signed_member(document, "created_wall_ms");
}

std::vector<double> read_numbers(Fields& fields, const json& object, const char* key) {
  std::vector<double> numbers;
  for (const json& value : fields.list_member(object, key)) {
    if (!value.is_number()) fields.fail(key, "has something that is not a number");
    if (!fields.good()) break;
    numbers.push_back(value.get<double>());
  }
  return numbers;
}

void read_stability(Fields& fields, const json& document, StabilityRecord& record) {
  const auto found = document.find("stability");
  if (found == document.end()) return;
  record.skips = fields.number_member(*found, "skips", kMaxI64);
  record.losses = read_numbers(fields, *found, "losses");
  record.grad_norms = read_numbers(fields, *found, "grad_norms");
}

void read_loss_scale(Fields& fields, const json& document, LossScaleRecord& record) {
  const auto found = document.find("loss_scale");
  if (found == document.end()) return;
  record.scale = fields.number_member(*found, "scale", kMaxLossScale);
  if (!std::has_single_bit(record.scale)) fields.fail("scale", "is not a power of two");
  record.good_steps = fields.number_member(*found, "good_steps", kMaxI64);
  record.hysteresis_left = fields.number_member(*found, "hysteresis_left", kMaxI64);
  record.overflows = fields.number_member(*found, "overflows", kMaxI64);
}

Manifest read_document(Fields& fields, const json& document) {
  Manifest m;
  if (fields.text_member(document, "format") != kManifestFormat) {
    fields.fail("format", "is not hpctl.checkpoint");
  }
  const uint64_t version = fields.number_member(document, "version", kMaxU32);
  if (version < 1 || version > kManifestVersion) {
    fields.fail("version", "is not one that this program reads");
  }
  m.step = fields.number_member(document, "step", kMaxI64);
  m.generation = fields.number_member(document, "generation", kMaxI64);
  m.parent = fields.number_member(document, "parent", kMaxI64);
  m.world_size = static_cast<int32_t>(fields.number_member(document, "world_size", kMaxWorld));
  m.sample_cursor = fields.number_member(document, "sample_cursor", kMaxI64);
  for (const json& row : fields.list_member(document, "skipped")) {
    if (!fields.row(row, "skipped", 2)) break;
    m.skipped.push_back(
        {fields.number(row[0], "skipped", kMaxI64), fields.number(row[1], "skipped", kMaxI64)});
  }
  if (document.is_object()) read_stability(fields, document, m.stability);
  if (document.is_object()) read_loss_scale(fields, document, m.loss_scale);
  const json& data = fields.member(document, "data");
  m.data.fingerprint = fields.text_member(data, "fingerprint");
  m.data.tokens = fields.number_member(data, "tokens", kMaxI64);
  m.data.seq_len = fields.signed_member(data, "seq_len");
  m.seed = fields.number_member(document, "seed", kMaxU64);
  m.weights_only =
      document.contains("weights_only") && fields.flag_member(document, "weights_only");
  read_labels(fields, document, m);
  if (fields.good()) read_layout(fields, document, m);
  if (fields.good()) read_files(fields, document, m);
  if (fields.good()) (version == 1 ? read_rows : read_ranges)(fields, document, m);
  return m;
}

Error damaged(const std::string& path, const std::string& why) {
  return Error{ErrorCode::kDataLoss, path + " is damaged (" + printable_line(why, kShownBytes) +
                                         "); use another checkpoint"};
}

// The last name of a path, trailing slashes ignored.
std::string last_component(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

Result<Manifest> manifest_from_text(const std::string& text, const std::string& path_for_errors) {
  if (text.size() <= kManifestSealBytes) return damaged(path_for_errors, "cut short");
  const std::string_view body(text.data(), text.size() - kManifestSealBytes);
  if (manifest_seal(body) != text.substr(body.size())) {
    return damaged(path_for_errors, "its bytes do not match its crc32c");
  }
  const json document = parse_json_or_discard(
      text, {.bytes = kMaxManifestBytes, .depth = 16, .values = kMaxManifestBytes / 2});
  if (document.is_discarded()) return damaged(path_for_errors, "not JSON");
  Fields fields;
  Manifest manifest = read_document(fields, document);
  if (!fields.good()) {
    // A later release's manifest need not be damaged; the rules of this release do not hold for it.
    const auto version = document.find("version");
    if (version != document.end() && whole_number<uint64_t>(*version) > kManifestVersion) {
      return Error{ErrorCode::kInvalidArgument,
                   path_for_errors + " was written by a newer release of hpctl: it has version " +
                       version->dump() + ", this release reads up to " +
                       std::to_string(kManifestVersion) + "; install that release to read it"};
    }
    return damaged(path_for_errors, fields.problem());
  }
  if (const auto problem = manifest_problem(manifest); !problem.empty()) {
    return damaged(path_for_errors, problem);
  }
  return manifest;
}

Result<Manifest> read_manifest(const std::string& step_dir) {
  const std::string path = step_dir + "/manifest.json";
  HP_TRY_ASSIGN(const auto text, read_file_if_there(path, kMaxManifestBytes));
  if (!text) {
    HP_TRY_ASSIGN(const bool has_directory, path_exists(step_dir));
    const char* why =
        has_directory ? " has no manifest.json: the save was not completed" : " does not exist";
    return Error{ErrorCode::kNotFound,
                 step_dir + why + "; list the usable ones with: hpctl checkpoint ls DIR", ENOENT};
  }
  HP_TRY_ASSIGN(Manifest manifest, manifest_from_text(*text, path));
  const auto ref = parse_checkpoint_name(last_component(step_dir));
  if (ref && *ref != manifest.ref()) {
    return damaged(path, "it belongs to " + manifest.ref().name());
  }
  return manifest;
}

}  // namespace hpctl
