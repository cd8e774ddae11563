// SPDX-License-Identifier: Apache-2.0
// Series that are made anew at every scrape, by the name of their metric. One thread at a time.
#pragma once

#include <prometheus/metric_family.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace hpctl {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

class MetricFamilies {
 public:
  // What is not a finite number is left out.
  void gauge(const char* name, const char* help, const MetricLabels& labels, double value) {
    if (!std::isfinite(value)) return;
    prometheus::ClientMetric metric;
    metric.label = labels;
    metric.gauge.value = value;
    family(name, help, prometheus::MetricType::Gauge).metric.push_back(std::move(metric));
  }
  void counter(const char* name, const char* help, const MetricLabels& labels, uint64_t value) {
    prometheus::ClientMetric metric;
    metric.label = labels;
    metric.counter.value = static_cast<double>(value);
    family(name, help, prometheus::MetricType::Counter).metric.push_back(std::move(metric));
  }
  std::vector<prometheus::MetricFamily> take() {
    std::vector<prometheus::MetricFamily> all;
    for (auto& [name, family] : by_name_) all.push_back(std::move(family));
    return all;
  }

 private:
  prometheus::MetricFamily& family(const char* name, const char* help,
                                   prometheus::MetricType type) {
    prometheus::MetricFamily& family = by_name_[name];
    family.name = name;
    family.help = help;
    family.type = type;
    return family;
  }
  std::map<std::string, prometheus::MetricFamily> by_name_;
};

inline MetricLabels with(MetricLabels labels, const char* name, const std::string& value) {
  labels.push_back({name, value});
  return labels;
}

}  // namespace hpctl
