// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/peft.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/job/job_spec_json.h"
#include "trainer/arch/lora.h"

namespace hpctl {

std::string peft_config_text(const LoraSpec& lora) {
  nlohmann::ordered_json config = {{"peft_type", "LORA"},
                                   {"task_type", "CAUSAL_LM"},
                                   {"base_model_name_or_path", nullptr},
                                   {"r", lora.rank},
                                   {"lora_alpha", lora.alpha},
                                   {"target_modules", nlohmann::json(lora.targets)},
                                   {"lora_dropout", 0.0},
                                   {"bias", "none"},
                                   {"fan_in_fan_out", false},
                                   {"use_rslora", false},
                                   {"init_lora_weights", true},
                                   {"inference_mode", true}};
  // A whole number there, as most have it.
  if (lora.alpha == std::floor(lora.alpha)) config["lora_alpha"] = static_cast<int64_t>(lora.alpha);
  return json_text(config, {.indent = 2}) + "\n";
}

Result<MergedAdapters> MergedAdapters::open(const std::string& step_dir) {
  HP_TRY_ASSIGN(CheckpointLoader loader, CheckpointLoader::open(step_dir));
  return MergedAdapters(std::move(loader));
}

Outcome MergedAdapters::select(const TensorSlot& tensor) {
  columns_ = 0;
  constexpr std::string_view kWeight = ".weight";
  if (!tensor.name.ends_with(kWeight)) return Ok{};
  const std::string name = tensor.name.substr(0, tensor.name.size() - kWeight.size());
  const int64_t rank = loader_.manifest().lora.rank;
  const std::vector<Block>& blocks = loader_.manifest().blocks;
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (const TensorSlot& slot : blocks[b].tensors) {
      // The manifest may come from any source.
      const bool is_a = slot.name == name + std::string(kLoraA);
      if (!is_a && slot.name != name + std::string(kLoraB)) continue;
      const std::vector<int64_t> wanted =
          is_a ? std::vector{rank, tensor.shape.back()} : std::vector{tensor.shape.front(), rank};
      if (slot.shape != wanted) {
        return Error{ErrorCode::kDataLoss, loader_.step_dir() + ": " + slot.name +
                                               " does not fit the model's " + tensor.name};
      }
      std::vector<float>& values = is_a ? a_ : b_;
      values.resize(static_cast<size_t>(slot.numel));
      HP_TRY(loader_.load_range(static_cast<int32_t>(b), StateKind::kParam,
                                {slot.offset, slot.offset + slot.numel}, values));
      columns_ = tensor.shape.back();
    }
  }
  return Ok{};
}

void MergedAdapters::add(int64_t first, std::span<float> values) {
  if (columns_ == 0) return;
  const LoraSpec& lora = loader_.manifest().lora;
  const auto scale = static_cast<float>(lora.scale());
  const auto rank = static_cast<size_t>(lora.rank);
  for (size_t done = 0; done < values.size();) {
    const int64_t element = first + static_cast<int64_t>(done);
    const auto row = static_cast<size_t>(element / columns_);
    const auto column = static_cast<size_t>(element % columns_);
    const size_t count = std::min(values.size() - done, static_cast<size_t>(columns_) - column);
    row_.assign(count, 0.0F);
    for (size_t k = 0; k < rank; ++k) {
      const float b = b_[row * rank + k];
      const float* a = a_.data() + k * static_cast<size_t>(columns_) + column;
      for (size_t i = 0; i < count; ++i) row_[i] += b * a[i];
    }
    for (size_t i = 0; i < count; ++i) values[done + i] += scale * row_[i];
    done += count;
  }
}

}  // namespace hpctl
