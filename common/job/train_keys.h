// SPDX-License-Identifier: Apache-2.0
// Every key below workload.train, one row each: where its value lies in the spec, its allowed
// values, its meaning. check_train() enforces the row, and job.yaml is read, written and documented
// by it (common/jobfile/train_yaml_keys.cc), so no second list of keys can differ. A relation
// between keys is a separate check (train_spec.cc).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/job/train_spec.h"

namespace hpctl {

// A choice of words; `set` is false for a word that is none of them.
struct WordAccess {
  const char* (*get)(const TrainSpec& train);
  bool (*set)(TrainSpec& train, std::string_view word);
  std::string (*all)();
};

// Any number of such words.
struct WordListAccess {
  std::vector<std::string> (*get)(const TrainSpec& train);
  bool (*add)(TrainSpec& train, std::string_view word);
  void (*clear)(TrainSpec& train);
  std::string (*all)();
};

// Nothing: a section, or a value whose form is its own.
using TrainField =
    std::variant<std::monostate, int64_t& (*)(TrainSpec&), uint64_t& (*)(TrainSpec&),
                 double& (*)(TrainSpec&), bool& (*)(TrainSpec&), WordAccess, WordListAccess>;

// Of a number. With `or_zero`, 0 is allowed besides and means "off".
struct KeyLimits {
  double low = 0;
  double high = 0;  // low = high: none
  bool or_zero = false;
};

enum class TrainKeyKind { kSection, kValue, kUnavailable };

struct TrainKey {
  std::string_view path;  // dotted; "workload.train.steps"
  TrainKeyKind kind = TrainKeyKind::kValue;
  TrainField field = {};
  KeyLimits limits = {};
  // In documents: "required", "of the preset"; "" = the default of the field, if there is one.
  std::string_view initial = {};
  std::string_view meaning;
  // For a section or a special form; otherwise the field determines it.
  std::string_view type = {};
  // Where it says more than limits or words do.
  std::string_view range = {};
  // Whether the key is `auto`, for a key that may be; `auto` is then its default.
  bool AutoKeys::*automatic = nullptr;
};

std::span<const TrainKey> train_keys();

// "1 to 2^40", "0, or 1 to 1e6", "bf16, fp16, fp32"; "" = any of the type.
std::string range_text(const TrainKey& key);

}  // namespace hpctl
