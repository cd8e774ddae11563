// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/prometheus_server.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <regex>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/process/spawn.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/http_get.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;

constexpr const char* kProgram = "/usr/bin/prometheus";
constexpr std::chrono::seconds kPatience{60};
const std::string kShipped = std::string(HPCTL_SOURCE) + "/deploy/prometheus";

std::string shipped(const std::string& name) {
  const auto text = read_file(kShipped + "/" + name);
  HP_CHECK(text.ok());
  return *text;
}

// "[15m]", "for: 5m" and "offset 6h" in milliseconds, and 3600 seconds as fewer.
std::string quickened(const std::string& rules) {
  static const std::regex kDuration(R"((\[|for: |offset )(\d+)([mh]))");
  std::string made;
  auto from = rules.cbegin();
  for (std::sregex_iterator found(rules.begin(), rules.end(), kDuration), end; found != end;
       ++found) {
    const auto& match = *found;
    const long minutes = std::stol(match[2]) * (match[3] == "h" ? 60 : 1);
    made.append(from, match[0].first);
    made += match[1].str() + std::to_string(minutes * 60'000 / kTimesFaster) + "ms";
    from = match[0].second;
  }
  made.append(from, rules.cend());
  return std::regex_replace(made, std::regex("3600"), std::to_string(3600 / kTimesFaster));
}

std::string configuration(const std::string& home, const std::string& ca_file) {
  const std::string interval = std::to_string(kIntervalMs) + "ms";
  std::string text = std::regex_replace(shipped("prometheus.yml"), std::regex("_interval: 10s"),
                                        "_interval: " + interval);
  text = std::regex_replace(text, std::regex("_timeout: 10s"), "_timeout: " + interval);
  if (!ca_file.empty()) {
    const std::string configured = std::regex_replace(
        text, std::regex("#(tls_config: \\{ca_file: )/etc/hpctl/ca.pem,"), "$1" + ca_file + ",");
    HP_CHECK(configured != text);
    text = configured;
  }
  return std::regex_replace(text, std::regex("HPCTL_HOME/"), home + "/");
}

std::string percent_encoded(const std::string& text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string made;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      made += c;
      continue;
    }
    made += {'%', kDigits[static_cast<unsigned char>(c) >> 4], kDigits[c & 15]};
  }
  return made;
}

}  // namespace

std::string firing(const std::string& alert, const std::string& job) {
  const std::string of_job = job.empty() ? "" : ",name=\"" + job + "\"";
  return "ALERTS{alertstate=\"firing\",alertname=\"" + alert + "\"" + of_job + "}";
}

bool PrometheusServer::is_installed() { return is_accessible(kProgram); }

PrometheusServer::PrometheusServer(const std::string& home, const std::string& ca_file) {
  HP_CHECK(write_file_atomic(directory_ / "prometheus.yml", configuration(home, ca_file)).ok());
  HP_CHECK(write_file_atomic(directory_ / "hpctl-rules.yml", quickened(shipped("hpctl-rules.yml")))
               .ok());
  const auto pid = spawn_in_new_session(
      {{kProgram, "--config.file=" + directory_ / "prometheus.yml",
        "--storage.tsdb.path=" + directory_ / "data", "--web.listen-address=" + port_.address(),
        "--web.console.templates=" + kShipped + "/consoles",
        "--web.console.libraries=" + kShipped + "/consoles"},
       directory_ / "log",
       -1,
       {}});
  HP_CHECK(pid.ok());
  pid_ = *pid;
  const auto is_ready = [&] {
    return http_get(port_.port(), "/-/ready").find(" 200 ") != std::string::npos;
  };
  EXPECT_TRUE(wait_until(directory_.path(), is_ready, kPatience)) << log();
}

PrometheusServer::~PrometheusServer() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

json PrometheusServer::call(const std::string& path) const {
  const std::string answer = http_get(port_.port(), path);
  const size_t body = answer.find("\r\n\r\n");
  const json parsed =
      json::parse(body == std::string::npos ? "" : answer.substr(body + 4), nullptr, false);
  EXPECT_TRUE(parsed.is_object() && parsed.value("status", "") == "success")
      << path << ": " << answer << log();
  return parsed.is_object() ? parsed.value("data", json::object()) : json::object();
}

json PrometheusServer::query(const std::string& expression) const {
  return call("/api/v1/query?query=" + percent_encoded(expression)).value("result", json::array());
}

bool PrometheusServer::fires(const std::string& alert, const std::string& job) const {
  return has_data(firing(alert, job));
}

json PrometheusServer::rules() const {
  json all = json::array();
  for (const json& group : call("/api/v1/rules").value("groups", json::array())) {
    for (const json& rule : group.at("rules")) all.push_back(rule);
  }
  return all;
}

std::string PrometheusServer::console(const std::string& page) const {
  return http_get(port_.port(), "/consoles/" + page);
}

std::string PrometheusServer::url(const std::string& page) const {
  return "http://" + port_.address() + "/consoles/" + page;
}

std::string PrometheusServer::log() const {
  const auto text = read_file(directory_.path() + "/log");
  return text.ok() ? *text : "";
}

std::vector<std::string> queries_of_view(const std::string& view) {
  static const std::regex kVariable(R"(\$[a-z]+)");
  std::vector<std::string> queries;
  const json dashboard = json::parse(shipped("grafana/hpctl-" + view + ".json"));
  for (const json& panel : dashboard.at("panels")) {
    for (const json& target : panel.at("targets")) {
      queries.push_back(std::regex_replace(target.at("expr").get<std::string>(), kVariable, ".*"));
    }
  }
  return queries;
}

}  // namespace hpctl::testing
