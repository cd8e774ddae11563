// SPDX-License-Identifier: Apache-2.0
#include "common/layout/local_layout.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/divisors.h"

namespace hpctl {
namespace {

using Kind = CuttingRule::Kind;

int64_t units_of(const TensorSlot& tensor, const CuttingRule& rule) {
  return tensor.shape.at(static_cast<size_t>(rule.dim)) / rule.sections / rule.unit;
}

// Ranks that have the same part: more than 1 only where units are shared.
int32_t sharers(const TensorSlot& tensor, const CuttingRule& rule, int32_t parts) {
  if (rule.kind == Kind::kCopies) return parts;
  const int64_t units = units_of(tensor, rule);
  return rule.kind == Kind::kShared && units < parts ? static_cast<int32_t>(parts / units) : 1;
}

std::vector<PlacedBox> boxes_of(const TensorSlot& tensor, const CuttingRule& rule,
                                TensorPlace place) {
  Box box = whole_box(tensor.shape);
  if (rule.kind == Kind::kCopies) return {{std::move(box), 0}};
  const int32_t shared_by = sharers(tensor, rule, place.size);
  const int64_t units = units_of(tensor, rule);
  const int64_t parts = place.size / shared_by;
  const int64_t index = place.rank / shared_by;
  const Share share = share_of(units, index, parts);
  const int64_t begin = share.begin * rule.unit;
  const int64_t length = share.count * rule.unit;
  const auto dim = static_cast<size_t>(rule.dim);
  if (length == tensor.shape[dim] / rule.sections) return {{std::move(box), 0}};
  std::vector<PlacedBox> boxes;
  for (int32_t section = 0; section < rule.sections; ++section) {
    box.offsets[dim] = section * (tensor.shape[dim] / rule.sections) + begin;
    box.lengths[dim] = length;
    boxes.push_back({box, section * length});
  }
  return boxes;
}

std::vector<int64_t> shape_of(const TensorSlot& tensor, const CuttingRule& rule,
                              const std::vector<PlacedBox>& boxes) {
  std::vector<int64_t> shape = tensor.shape;
  if (rule.kind == Kind::kCopies) return shape;
  const auto dim = static_cast<size_t>(rule.dim);
  shape[dim] = boxes.back().local_begin + boxes.back().box.lengths[dim];
  return shape;
}

// Elements of the largest part that a rank of tp has.
int64_t largest_part(const TensorSlot& tensor, const CuttingRule& rule, int32_t size) {
  int64_t largest = 0;
  for (int32_t rank = 0; rank < size; ++rank) {
    const LocalTensor local = local_tensor(tensor, rule, {rank, size});
    int64_t numel = 1;
    for (const int64_t extent : local.shape) numel *= extent;
    largest = std::max(largest, numel);
  }
  return largest;
}

// Appends tensor `tensor` of a block of the model.
void append_local(const CutModel& model, size_t block, size_t tensor, TensorPlace place,
                  LocalBlock& local) {
  const TensorSlot& whole = model.blocks[block].block.tensors[tensor];
  const CuttingRule& rule = model.blocks[block].rules[tensor];
  LocalTensor own = local_tensor(whole, rule, place);
  own.block = static_cast<int32_t>(block);
  own.tensor = static_cast<int32_t>(tensor);
  append_tensor(local.block, whole.name, own.shape);
  TensorSlot& slot = local.block.tensors.back();
  slot.no_decay = whole.no_decay;
  local.block.numel = slot.offset + align_elements(largest_part(whole, rule, place.size));
  local.tensors.push_back(std::move(own));
}

LocalBlock cut_block(const CutModel& model, size_t block, TensorPlace place) {
  LocalBlock local;
  local.block.name = model.blocks[block].block.name;
  for (size_t t = 0; t < model.blocks[block].block.tensors.size(); ++t) {
    append_local(model, block, t, place, local);
  }
  return local;
}

bool is_layer(const Block& block) { return block.name.starts_with("layers."); }

int64_t layer_count(const CutModel& model) {
  return std::count_if(model.blocks.begin(), model.blocks.end(),
                       [](const CutBlock& cut) { return is_layer(cut.block); });
}

// The blocks [begin, end) of a stage: what is before the first layer is the first stage's, what is
// behind the last one the last stage's.
std::pair<size_t, size_t> blocks_of_stage(const CutModel& model, int32_t stages, int32_t stage) {
  size_t before = 0;
  while (before < model.blocks.size() && !is_layer(model.blocks[before].block)) ++before;
  const StageLayers layers = layers_of_stage(layer_count(model), stages, stage);
  const size_t begin = stage == 0 ? 0 : before + static_cast<size_t>(layers.begin);
  const size_t end =
      stage + 1 == stages ? model.blocks.size() : before + static_cast<size_t>(layers.end);
  return {begin, end};
}

// Where the first stage's embedding is the last one's output projection, both have it: the copies
// of the last stage come behind those of the first.
void share_tied(const CutModel& model, TensorPlace place, bool is_first, LocalBlock& local) {
  const auto& tensors = model.blocks.front().block.tensors;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (tensors[t].name != model.tied) continue;
    if (!is_first) append_local(model, 0, t, place, local);
    LocalTensor& tied = is_first ? local.tensors[t] : local.tensors.back();
    if (!is_first) tied.copy += tied.copies;
    tied.copies *= 2;
  }
}

std::vector<LocalBlock> blocks_of(const CutModel& model, const Mesh& mesh, int32_t stage,
                                  TensorPlace place) {
  const int32_t stages = mesh.degree(MeshDim::kPp);
  const auto [begin, end] = blocks_of_stage(model, stages, stage);
  std::vector<LocalBlock> blocks;
  for (size_t b = begin; b < end; ++b) blocks.push_back(cut_block(model, b, place));
  if (stages > 1 && !model.tied.empty()) {
    if (stage == 0) share_tied(model, place, true, blocks.front());
    if (stage + 1 == stages) share_tied(model, place, false, blocks.back());
  }
  return blocks;
}

Outcome check_tensor(const TensorSlot& tensor, const CuttingRule& rule, int32_t parts) {
  if (rule.kind == Kind::kCopies || parts == 1) return Ok{};
  const int64_t units = units_of(tensor, rule);
  if (rule.kind == Kind::kUneven ? units >= parts : units % parts == 0) return Ok{};
  if (rule.kind == Kind::kShared && parts % units == 0) return Ok{};
  const std::string fit = rule.kind == Kind::kUneven
                              ? "; " + std::to_string(units) + " and less fit"
                              : nearest_divisors(units, parts);
  return Error{ErrorCode::kInvalidArgument, tensor.name + " has " + std::to_string(units) +
                                                (rule.unit > 1 ? " heads" : " rows or columns") +
                                                ", which tp " + std::to_string(parts) +
                                                " does not divide" + fit};
}

}  // namespace

Share share_of(int64_t total, int64_t part, int64_t parts) {
  const int64_t begin = total * part / parts;
  return {begin, total * (part + 1) / parts - begin};
}

LocalTensor local_tensor(const TensorSlot& tensor, const CuttingRule& rule, TensorPlace place) {
  HP_CHECK(place.rank >= 0 && place.rank < place.size);
  LocalTensor local;
  local.boxes = boxes_of(tensor, rule, place);
  local.shape = shape_of(tensor, rule, local.boxes);
  local.dim = rule.dim;
  local.copies = sharers(tensor, rule, place.size);
  local.copy = place.rank % local.copies;
  return local;
}

std::vector<Rectangle> rectangles_of(ElementRange elements, int64_t width) {
  std::vector<Rectangle> found;
  if (elements.empty()) return found;
  int64_t row = elements.begin / width;
  const int64_t column = elements.begin % width;
  const int64_t last_row = elements.end / width;
  const int64_t last_column = elements.end % width;
  if (row == last_row) return {{row, 1, column, last_column - column}};
  if (column > 0) found.push_back({row++, 1, column, width - column});
  if (row < last_row) found.push_back({row, last_row - row, 0, width});
  if (last_column > 0) found.push_back({last_row, 1, 0, last_column});
  return found;
}

StageLayers layers_of_stage(int64_t layers, int32_t stages, int32_t stage) {
  HP_CHECK(stage >= 0 && stage < stages && (stages == 1 || layers >= stages));
  const int64_t each = layers / stages;
  const int64_t more = layers % stages;  // stages with one layer more
  const int64_t begin = stage * each + std::min<int64_t>(stage, more);
  return {begin, begin + each + (stage < more ? 1 : 0)};
}

Outcome check_local_layout(const CutModel& model, const Mesh& mesh) {
  const int32_t stages = mesh.degree(MeshDim::kPp);
  if (stages > 1 && layer_count(model) < stages) {
    return Error{ErrorCode::kInvalidArgument,
                 "the model has " + std::to_string(layer_count(model)) + " layers, less than pp " +
                     std::to_string(stages) + "; " + std::to_string(layer_count(model)) +
                     " and less fit"};
  }
  for (const CutBlock& cut : model.blocks) {
    for (size_t t = 0; t < cut.rules.size(); ++t) {
      HP_TRY(check_tensor(cut.block.tensors[t], cut.rules[t], mesh.degree(MeshDim::kTp)));
    }
  }
  return Ok{};
}

std::vector<LocalBlock> local_layout(const CutModel& model, const Mesh& mesh, int32_t rank) {
  HP_CHECK(check_local_layout(model, mesh).ok());
  return blocks_of(model, mesh, mesh.coordinate(rank, MeshDim::kPp),
                   {mesh.coordinate(rank, MeshDim::kTp), mesh.degree(MeshDim::kTp)});
}

}  // namespace hpctl
