// SPDX-License-Identifier: Apache-2.0
// The messages between the cluster controller and a job's controller that it starts: one JSON line
// each way, on a socket that is the child's stdin.
//
//   service -> child   the order, once the job's row is durable. A child whose service has died
//                      before sees the end of the stream and ends: nothing runs that no row knows.
//   child -> service   the report: its address and certificate, or why it does not serve
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/node_record.h"

namespace hpctl::cluster {

struct ChildOrder {
  std::string token;
  std::vector<std::string> nodes;
  std::string scheduler;
  std::string programs;
  uint64_t restart_count = 0;
  std::string metrics;        // HOST:PORT as --metrics; "" = none
  bool older_agents = false;  // of a release without tokens of their own may come
  // Evidence of all users' jobs against machines: those that are lemons now (fleet_lemons.h).
  std::vector<LemonScore> lemons = {};
};
std::string to_line(const ChildOrder& order);
Result<ChildOrder> order_from_line(const std::string& line);

// Where a controller serves.
struct ChildReport {
  std::string address;      // "IP:PORT"
  std::string certificate;  // PEM
  // The port of its metrics, 0 = none. A port of this machine and no address: a user's process must
  // not send a monitoring system anywhere else.
  uint16_t metrics_port = 0;
  // It takes tokens of readers and operators (common/net/role_token.h).
  bool takes_roles = false;
};
std::string report_line(const Result<ChildReport>& report);
Result<ChildReport> report_from_line(const std::string& line);

// Up to the newline; an error when the stream ends first, or after `timeout_ms` (-1 = never), or
// beyond `max_bytes`.
Result<std::string> read_line(int fd, int timeout_ms, size_t max_bytes);

inline constexpr size_t kMaxOrderBytes = 4U << 20;
inline constexpr size_t kMaxReportBytes = 8U << 10;

}  // namespace hpctl::cluster
