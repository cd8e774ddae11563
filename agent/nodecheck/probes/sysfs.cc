// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/probes/sysfs.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include "common/base/file.h"

namespace hpctl::agent {
namespace {

constexpr auto kSamplesApart = std::chrono::milliseconds(500);

}  // namespace

bool is_this_machine() {
  const char* root = std::getenv("HPCTL_SYSROOT");
  return root == nullptr || *root == '\0';
}

std::string first_line(const std::string& path) {
  const auto text = read_file(path, 4096);
  return text.ok() ? text->substr(0, text->find('\n')) : "";
}

std::optional<uint64_t> read_number(const std::string& path) {
  const std::string text = first_line(path);
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::strtoull(text.c_str(), nullptr, 10);
}

CounterSamples sample_twice(const std::function<Counters()>& read) {
  CounterSamples samples;
  const auto begin = std::chrono::steady_clock::now();
  samples.before = read();
  if (samples.before.empty()) return samples;
  std::this_thread::sleep_for(kSamplesApart);  // time is what is measured
  samples.after = read();
  samples.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return samples;
}

}  // namespace hpctl::agent
