// SPDX-License-Identifier: Apache-2.0
#include "hpctl/last_evaluations.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>

#include "common/base/bounded_json.h"
#include "hpctl/log_file.h"

namespace hpctl {
namespace {

// A step's line, its validation and its test.
constexpr size_t kLinesOfAStep = 3;

std::optional<std::string> evaluation_in(const nlohmann::json& line, const std::string& key) {
  const auto number = [&](const std::string& name) {
    const auto found = line.find(name);
    return found != line.end() && found->is_number() ? std::optional(found->get<double>())
                                                     : std::nullopt;
  };
  const auto loss = number(key);
  const auto perplexity = number("perplexity");
  const auto sequences = number("sequences");
  if (!loss || !perplexity || !sequences) return std::nullopt;
  std::array<char, 120> text{};
  std::snprintf(text.data(), text.size(), "loss %.4f, perplexity %.2f over %.0f sequences", *loss,
                *perplexity, *sequences);
  return text.data();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> last_evaluations(const std::string& metrics_path) {
  std::vector<std::pair<std::string, std::string>> found;
  const std::vector<std::string> texts = LogFile(metrics_path).read_last(kLinesOfAStep);
  std::vector<nlohmann::json> lines;
  for (const std::string& text : texts) {
    auto line = parse_json_or_discard(text);
    if (!line.is_object() || !line.contains("step")) continue;
    if (!lines.empty() && lines.back()["step"] != line["step"]) lines.clear();
    lines.push_back(std::move(line));
  }
  for (const std::string name : {"validation", "test"}) {
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
      const auto text = evaluation_in(*line, name + "_loss");
      if (!text) continue;
      found.emplace_back(name, *text);
      break;
    }
  }
  return found;
}

std::optional<Validation> newest_validation(const std::string& metrics_path) {
  constexpr size_t kLinesSearched = 4096;  // some hundred bytes each
  const std::vector<std::string> texts = LogFile(metrics_path).read_last(kLinesSearched);
  for (auto text = texts.rbegin(); text != texts.rend(); ++text) {
    if (text->find("\"validation_loss\"") == std::string::npos) continue;
    const auto line = parse_json_or_discard(*text);
    if (!line.is_object()) continue;
    const auto step = line.find("step");
    const auto loss = line.find("validation_loss");
    if (step == line.end() || !step->is_number_unsigned()) continue;
    if (loss == line.end() || !loss->is_number()) continue;
    return Validation{step->get<uint64_t>(), loss->get<double>()};
  }
  return std::nullopt;
}

}  // namespace hpctl
