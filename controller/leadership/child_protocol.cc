// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/child_protocol.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "common/base/bounded_json.h"
#include "common/base/json_text.h"
#include "common/net/wait_for_fd.h"

namespace hpctl::cluster {
namespace {

using nlohmann::json;

Error malformed(const json& document, const json::exception& e) {
  return Error{ErrorCode::kDataLoss, "not understood: " + problem_in(document, e)};
}

// Absent in the report of an older release; what is no port is none.
uint16_t port_in(const json& document) {
  const int64_t port = document.value("metrics_port", int64_t{0});
  return port > 0 && port <= UINT16_MAX ? static_cast<uint16_t>(port) : uint16_t{0};
}

// Bytes of the user's file system and of other machines may be in it.
std::string dump(const json& document) { return json_text(document) + "\n"; }

}  // namespace

std::string to_line(const ChildOrder& order) {
  json lemons = json::array();
  for (const LemonScore& lemon : order.lemons) {
    lemons.push_back({{"node", lemon.node},
                      {"instance", lemon.instance},
                      {"score", lemon.score},
                      {"records", lemon.records},
                      {"worst", lemon.worst}});
  }
  return dump({{"token", order.token},
               {"nodes", order.nodes},
               {"scheduler", order.scheduler},
               {"programs", order.programs},
               {"restart_count", order.restart_count},
               {"metrics", order.metrics},
               {"older_agents", order.older_agents},
               {"lemons", std::move(lemons)}});
}

Result<ChildOrder> order_from_line(const std::string& line) {
  ChildOrder order;
  json document;
  try {
    document = parse_json(line);
    document.at("token").get_to(order.token);
    document.at("nodes").get_to(order.nodes);
    document.at("scheduler").get_to(order.scheduler);
    document.at("programs").get_to(order.programs);
    document.at("restart_count").get_to(order.restart_count);
    order.metrics = document.value("metrics", "");
    order.older_agents = document.value("older_agents", true);
    for (const json& lemon : document.value("lemons", json::array())) {
      order.lemons.push_back({lemon.at("node").get<std::string>(),
                              lemon.at("instance").get<std::string>(),
                              lemon.at("score").get<double>(), lemon.at("records").get<size_t>(),
                              lemon.at("worst").get<std::string>()});
    }
  } catch (const json::exception& e) {
    return malformed(document, e);
  }
  return order;
}

std::string report_line(const Result<ChildReport>& report) {
  if (report.ok()) {
    return dump({{"address", report->address},
                 {"certificate", report->certificate},
                 {"metrics_port", report->metrics_port},
                 {"takes_roles", report->takes_roles}});
  }
  return dump({{"code", static_cast<int>(report.error().code)},
               {"error", report.error().message.substr(0, kMaxReportBytes / 8)}});
}

Result<ChildReport> report_from_line(const std::string& line) {
  json document;
  try {
    document = parse_json(line);
    if (document.contains("address")) {
      return ChildReport{document.at("address").get<std::string>(),
                         document.at("certificate").get<std::string>(), port_in(document),
                         document.value("takes_roles", false)};
    }
    const int code = document.at("code").get<int>();
    const bool known = code >= 0 && code <= static_cast<int>(ErrorCode::kStorage);
    std::string words = document.at("error").get<std::string>();
    if (words.empty()) words = "it does not say why";
    // It becomes a line of the service's log and of the caller's terminal.
    std::replace_if(
        words.begin(), words.end(),
        [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, ' ');
    return Error{known ? static_cast<ErrorCode>(code) : ErrorCode::kInternal, std::move(words)};
  } catch (const json::exception& e) {
    return malformed(document, e);
  }
}

Result<std::string> read_line(int fd, int timeout_ms, size_t max_bytes) {
  const int64_t deadline_ms = timeout_ms < 0 ? kNoDeadline : deadline_in(timeout_ms);
  std::string line;
  std::array<char, 4096> buffer{};
  for (;;) {
    HP_TRY(wait_for_fd(fd, POLLIN, deadline_ms));
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("cannot read from the other side");
    if (got == 0) return Error{ErrorCode::kUnavailable, "the other side has ended"};
    line.append(buffer.data(), static_cast<size_t>(got));
    if (const size_t end = line.find('\n'); end != std::string::npos) return line.substr(0, end);
    if (line.size() > max_bytes) return Error{ErrorCode::kInvalidArgument, "a line is too long"};
  }
}

}  // namespace hpctl::cluster
