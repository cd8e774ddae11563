// SPDX-License-Identifier: Apache-2.0
// What other programs call a key or a value of job.yaml: the names of transformers, Megatron-LM,
// TorchTitan, DeepSpeed, Lightning, torchrun and sbatch. None of them is accepted; the message
// about an unknown key or value names ours.
#pragma once

#include <span>
#include <string_view>

namespace hpctl {

struct ForeignKey {
  std::string_view word;  // in small letters, with _ for -
  std::string_view key;   // ours, dotted; "" = there is none
  std::string_view note;  // how ours differs, or why there is none
};
std::span<const ForeignKey> foreign_keys();
// By the last name of a key; capitals and dashes do not matter. nullptr = not known.
const ForeignKey* find_foreign_key(std::string_view name);

struct ForeignValue {
  std::string_view key;   // ours, dotted
  std::string_view word;  // in small letters, with _ for -
  std::string_view value;
};
std::span<const ForeignValue> foreign_values();
// Our value of `key` for `word`; "" = not known.
std::string_view find_foreign_value(std::string_view key, std::string_view word);

}  // namespace hpctl
