// SPDX-License-Identifier: Apache-2.0
// A real Prometheus with what deploy/prometheus ships, on the loopback. Time passes in it
// kTimesFaster times as fast: durations of the rules (windows, `for`, offsets) are shortened, and
// it scrapes and evaluates every kIntervalMs. Nothing else of the shipped files is changed.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/base/json.h"
#include "tests/support/loopback_port.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::testing {

inline constexpr int kTimesFaster = 300;
inline constexpr int kIntervalMs = 500;

// The series of this alert while it fires, of the job of this name; "" = of whatever.
std::string firing(const std::string& alert, const std::string& job = "");

class PrometheusServer {
 public:
  static bool is_installed();
  // Scrapes what is found with the shipped patterns in `home`; returns when it answers. `ca_file`:
  // with the shipped comment about HTTPS in force, and this file in it; "" = as it is shipped.
  explicit PrometheusServer(const std::string& home, const std::string& ca_file = "");
  ~PrometheusServer();
  PrometheusServer(const PrometheusServer&) = delete;
  PrometheusServer& operator=(const PrometheusServer&) = delete;

  // Series of the answer; a query that is refused fails the test.
  nlohmann::json query(const std::string& expression) const;
  bool has_data(const std::string& expression) const { return !query(expression).empty(); }
  bool fires(const std::string& alert, const std::string& job = "") const;
  // As it has loaded them: "name", "query", "health", "lastError".
  nlohmann::json rules() const;
  // Of a console template, with its query string: status line, headers and body.
  std::string console(const std::string& page) const;
  std::string url(const std::string& page) const;
  std::string log() const;

 private:
  nlohmann::json call(const std::string& path) const;

  TemporaryDirectory directory_;
  test::LoopbackPort port_;
  pid_t pid_ = -1;
};

// Every query of the dashboard of this view, for all jobs and nodes.
std::vector<std::string> queries_of_view(const std::string& view);

}  // namespace hpctl::testing
