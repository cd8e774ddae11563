// SPDX-License-Identifier: Apache-2.0
#include "trainer/metrics/evaluation_record.h"

#include <algorithm>
#include <fstream>
#include <string_view>

#include "common/base/json.h"

namespace hpctl {

namespace {

// "" = it cannot be read. The first line may be half of one.
std::string read_tail(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const auto size = static_cast<uint64_t>(std::max<std::streamoff>(0, file.tellg()));
  std::string text(std::min(size, kEvaluationTail), '\0');
  file.seekg(static_cast<std::streamoff>(size - text.size()));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace

bool has_evaluation(const std::string& path, const std::string& part, uint64_t step) {
  const std::string text = read_tail(path);
  std::string_view left = text;
  while (!left.empty()) {
    const size_t end = left.rfind('\n');
    const std::string_view line = end == std::string_view::npos ? left : left.substr(end + 1);
    left = end == std::string_view::npos ? std::string_view() : left.substr(0, end);
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (!parsed.is_object()) continue;  // empty or torn
    const auto number = parsed.find("step");
    if (number == parsed.end() || !number->is_number_unsigned()) continue;
    if (*number == step && parsed.contains(part + "_loss")) return true;
    if (*number < step) return false;
  }
  return false;
}

}  // namespace hpctl
