// SPDX-License-Identifier: Apache-2.0
// "key: value" with numbers that read back as the same number. Include from .cc files only.
#pragma once

#include <yaml-cpp/yaml.h>

#include <array>
#include <charconv>
#include <string>

#include "common/job/job_spec.h"
#include "common/job/train_keys.h"

namespace hpctl {

// The shortest text that reads back as the same number.
inline std::string shortest(double value) {
  std::array<char, 32> buffer{};
  const bool plain = value == 0 || (value >= 1e-4 && value < 1e15);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::general;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr;
  return {buffer.data(), end};
}

template <typename T>
void put(YAML::Emitter& out, const char* key, const T& value) {
  out << YAML::Key << key << YAML::Value << value;
}
inline void put(YAML::Emitter& out, const char* key, double value) {
  out << YAML::Key << key << YAML::Value << shortest(value);
}

// For a field that is present: as put_train() writes it, without quotes.
std::string field_text(const TrainField& field, const TrainSpec& train);
// The train section, with every default written out.
void put_train(YAML::Emitter& out, const TrainSpec& train);

}  // namespace hpctl
