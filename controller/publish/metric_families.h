// SPDX-License-Identifier: Apache-2.0
// Series that are made at every scrape, written straight as Prometheus' text: a job with thousands
// of ranks has tens of thousands, and an object for each of them, with a copy of its labels, costs
// more than all else that a controller does. One thread at a time.
//
// Format: https://prometheus.io/docs/instrumenting/exposition_formats (0.0.4). All series of a
// metric must be adjacent, so each metric's lines are collected apart.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hpctl {

// The labels of a series as they stand in the text, made once for all series that have them.
class MetricLabels {
 public:
  MetricLabels(std::initializer_list<std::pair<const char*, std::string_view>> labels) {
    for (const auto& [name, value] : labels) add(name, value);
  }
  void add(const char* name, std::string_view value);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

MetricLabels with(MetricLabels labels, const char* name, std::string_view value);

class MetricFamilies {
 public:
  // `name` and `help` live as long as this; the first help of a name counts. Numbers that are not
  // finite are left out.
  void gauge(const char* name, const char* help, const MetricLabels& labels, double value);
  void counter(const char* name, const char* help, const MetricLabels& labels, uint64_t value);
  // The lines of each metric, after its help and type; by name.
  std::vector<std::string> take();

 private:
  void add(const char* type, const char* name, const char* help, const MetricLabels& labels,
           double value);
  std::map<std::string_view, std::string> by_name_;
};

}  // namespace hpctl
