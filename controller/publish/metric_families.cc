// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/metric_families.h"

#include <array>
#include <charconv>
#include <cmath>

namespace hpctl {
namespace {

constexpr int kDigits = 16;  // as Prometheus' own client library has it

void append_escaped(std::string& text, std::string_view value) {
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
}

}  // namespace

void MetricLabels::add(const char* name, std::string_view value) {
  if (!text_.empty()) text_ += ',';
  text_ += name;
  text_ += "=\"";
  append_escaped(text_, value);
  text_ += '"';
}

MetricLabels with(MetricLabels labels, const char* name, std::string_view value) {
  labels.add(name, value);
  return labels;
}

void MetricFamilies::gauge(const char* name, const char* help, const MetricLabels& labels,
                           double value) {
  if (std::isfinite(value)) add("gauge", name, help, labels, value);
}

void MetricFamilies::counter(const char* name, const char* help, const MetricLabels& labels,
                             uint64_t value) {
  add("counter", name, help, labels, static_cast<double>(value));
}

void MetricFamilies::add(const char* type, const char* name, const char* help,
                         const MetricLabels& labels, double value) {
  std::string& text = by_name_[name];
  if (text.empty()) {
    text.append("# HELP ").append(name).append(" ").append(help);
    text.append("\n# TYPE ").append(name).append(" ").append(type).append("\n");
  }
  text += name;
  if (!labels.text().empty()) text.append("{").append(labels.text()).append("}");
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 std::chars_format::general, kDigits);
  text += ' ';
  text.append(digits.data(), end.ptr);
  text += '\n';
}

std::vector<std::string> MetricFamilies::take() {
  std::vector<std::string> all;
  for (auto& [name, text] : by_name_) all.push_back(std::move(text));
  by_name_.clear();
  return all;
}

}  // namespace hpctl
