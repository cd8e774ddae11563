// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/tensor_cuts.h"

#include <algorithm>

#include "common/base/check.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/registry.h"

namespace hpctl {
namespace {

TensorBox whole_box(const TensorSlot& tensor) {
  return {std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
}

TensorBox cut_box(const TensorSlot& tensor, size_t dimension, Share share) {
  TensorBox box = whole_box(tensor);
  box.begin[dimension] = share.begin;
  box.shape[dimension] = share.count;
  return box;
}

LocalTensor one_box(TensorBox box) { return {.shape = box.shape, .boxes = {box}}; }

LocalTensor whole(const TensorSlot& tensor, int ranks) {
  LocalTensor local = one_box(whole_box(tensor));
  local.copies = ranks;
  return local;
}

// Either each rank has some heads, or a few consecutive ranks have the same one.
LocalTensor key_heads(const TensorSlot& tensor, int64_t heads, TensorPlace place) {
  if (heads >= place.size) {
    return one_box(cut_box(tensor, 0, share_of(tensor.shape[0], place.rank, place.size)));
  }
  const int copies = place.size / static_cast<int>(heads);
  const int head = place.rank / copies;
  LocalTensor local = one_box(cut_box(tensor, 0, share_of(tensor.shape[0], head, heads)));
  local.first_copy = head * copies;
  local.copies = copies;
  return local;
}

LocalTensor thirds(const TensorSlot& tensor, TensorPlace place) {
  const size_t last = tensor.shape.size() - 1;
  const int64_t width = tensor.shape[last] / 3;
  LocalTensor local{.shape = tensor.shape, .boxes = {}};
  local.shape[last] = 0;
  for (int64_t third = 0; third < 3; ++third) {
    Share share = share_of(width, place.rank, place.size);
    share.begin += third * width;
    local.boxes.push_back(cut_box(tensor, last, share));
    local.shape[last] += share.count;
  }
  return local;
}

// That of a matrix, or of an adapter by its matrix.
TensorCut cut_of(const ModelSpec& model, std::string_view tensor) {
  const auto of_matrix = [&](std::string_view end) {
    tensor.remove_suffix(end.size());
    return architecture_of(model).cut(std::string(tensor) + ".weight");
  };
  if (tensor.ends_with(kLoraA)) {
    const TensorCut cut = of_matrix(kLoraA);
    return cut == TensorCut::kColumns ? cut : TensorCut::kWhole;
  }
  if (tensor.ends_with(kLoraB)) {
    const TensorCut cut = of_matrix(kLoraB);
    return cut == TensorCut::kColumns ? TensorCut::kWhole : cut;
  }
  return architecture_of(model).cut(tensor);
}

// Without the nearest sizes.
std::string problem_of(const ModelSpec& model, int64_t size) {
  const auto divides = [&](const char* what, int64_t count) {
    return count % size == 0 ? std::string()
                             : std::string(what) + " " + std::to_string(count) +
                                   " is no multiple of " + std::to_string(size);
  };
  if (std::string problem = divides("heads", model.heads); !problem.empty()) return problem;
  if (std::string problem = divides("ffn", model.ffn); !problem.empty()) return problem;
  if (std::max(model.kv_heads, size) % std::min(model.kv_heads, size) != 0) {
    return "neither of kv_heads " + std::to_string(model.kv_heads) + " and " +
           std::to_string(size) + " is a multiple of the other";
  }
  if (model.vocab < size) {
    return "vocab " + std::to_string(model.vocab) + " is less than " + std::to_string(size);
  }
  return "";
}

}  // namespace

Share share_of(int64_t total, int64_t part, int64_t parts) {
  const int64_t begin = total * part / parts;
  return {begin, total * (part + 1) / parts - begin};
}

LocalTensor local_tensor(const ModelSpec& model, const TensorSlot& tensor, TensorPlace place) {
  HP_CHECK(place.rank >= 0 && place.rank < place.size);
  const Share first = share_of(tensor.shape.front(), place.rank, place.size);
  const Share last = share_of(tensor.shape.back(), place.rank, place.size);
  switch (cut_of(model, tensor.name)) {
    case TensorCut::kWhole:
      break;
    case TensorCut::kRows:
    case TensorCut::kVocabulary:
      return one_box(cut_box(tensor, 0, first));
    case TensorCut::kColumns:
      return one_box(cut_box(tensor, tensor.shape.size() - 1, last));
    case TensorCut::kKeyHeads:
      return key_heads(tensor, model.kv_heads, place);
    case TensorCut::kThirds:
      return thirds(tensor, place);
  }
  return whole(tensor, place.size);
}

std::string tensor_parallel_problem(const ModelSpec& model, int size) {
  const std::string problem = problem_of(model, size);
  if (problem.empty()) return "";
  std::string nearest;
  for (int64_t less = size - 1; less >= 1 && nearest.empty(); --less) {
    if (problem_of(model, less).empty()) nearest = std::to_string(less);
  }
  for (int64_t more = size + 1; more <= model.heads; ++more) {
    if (!problem_of(model, more).empty()) continue;
    nearest += (nearest.empty() ? "" : " and ") + std::to_string(more);
    break;
  }
  return problem + (nearest.empty() ? "" : "; the nearest that fit: " + nearest);
}

}  // namespace hpctl
