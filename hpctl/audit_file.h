// SPDX-License-Identifier: Apache-2.0
// Reading the audit logs of controllers (controller/publish/audit_log.h; the keys are in
// docs/security.md), with the older ones beside them. A job's file is its user's, who may have put
// anything there: what is no line of an audit log is counted and left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace hpctl {

struct AuditLine {
  int64_t wall_ms = 0;
  nlohmann::ordered_json keys;  // an object; "time", "call" and "outcome" are texts

  std::string text(const char* key) const;  // "" where there is no such text
  uint64_t number(const char* key) const;   // 0 where there is no such number
  // "alice", else "1000"; "" = unknown.
  std::string who() const;
  bool is_of(const std::string& name_or_uid) const;
  bool was_carried_out() const { return text("outcome") == "OK"; }
};

struct AuditLines {
  std::vector<AuditLine> lines;
  size_t damaged = 0;  // lines that are none

  void append(AuditLines others);
  void sort();  // oldest first, those of one time as they were
};

// Of PATH, PATH.1, ... kNotFound: there is none of them.
Result<AuditLines> read_audit_log(const std::string& path);

// The request in words, and the reason of its refusal: "put a node into quarantine (job 17):
// node=n1 reason=link flaps; the call comes as a reader, who may not QuarantineNode".
std::string what_was_asked(const AuditLine& line);
// "done", "refused" or "failed".
std::string what_became_of_it(const AuditLine& line);
// "10.0.0.7" of "ipv4:10.0.0.7:4711"; others as they are.
std::string where_from(const AuditLine& line);

}  // namespace hpctl
