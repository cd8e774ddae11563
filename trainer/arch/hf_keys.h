// SPDX-License-Identifier: Apache-2.0
// The keys of a config.json on their way into a ModelSpec, for the read_config() of architectures.
// Include from .cc files only: the JSON library is heavy.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/json.h"

namespace hpctl {

// Reads keys and keeps the first thing that cannot be.
class HfKeys {
 public:
  explicit HfKeys(const nlohmann::json& document) : document_(document) {}
  const std::string& problem() const { return problem_; }
  const nlohmann::json& document() const { return document_; }

  // Absent and null are the same to transformers.
  bool has(const char* key) const {
    return document_.contains(key) && !document_.at(key).is_null();
  }
  int64_t size(const char* key) { return has(key) ? size_of(key) : missing(key); }
  int64_t size_or(const char* key, int64_t otherwise) {
    return has(key) ? size_of(key) : otherwise;
  }
  double number_or(const char* key, double otherwise) {
    if (!has(key)) return otherwise;
    if (document_.at(key).is_number()) return document_.at(key).get<double>();
    return static_cast<double>(refuse(key, "expected a number"));
  }
  std::string text_or(const char* key, const char* otherwise) {
    if (!has(key)) return otherwise;
    if (document_.at(key).is_string()) return document_.at(key).get<std::string>();
    refuse(key, "expected text");
    return otherwise;
  }
  bool flag_or(const char* key, bool otherwise) {
    if (!has(key)) return otherwise;
    if (document_.at(key).is_boolean()) return document_.at(key).get<bool>();
    refuse(key, "expected true or false");
    return otherwise;
  }
  void only(const char* key, bool value) {
    if (flag_or(key, value) == value) return;
    refuse(key, value ? "false is not supported" : "true is not supported");
  }
  // "architectures" names `expected` alone, where it is given.
  void check_class(const char* expected);
  int64_t refuse(const std::string& key, const std::string& why) {
    if (problem_.empty()) problem_ = key + ": " + why;
    return 0;
  }

 private:
  int64_t size_of(const char* key) {
    const auto size = whole_number<uint64_t>(document_.at(key));
    if (size && *size <= (uint64_t{1} << 32)) return static_cast<int64_t>(*size);
    return refuse(key, "expected a whole number");
  }
  int64_t missing(const char* key) { return refuse(key, "is missing"); }

  const nlohmann::json& document_;
  std::string problem_;
};

}  // namespace hpctl
