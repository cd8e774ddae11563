// SPDX-License-Identifier: Apache-2.0
// One line of the audit log (controller/publish/audit_log.h): who did what, or was refused.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace hpctl {

struct AuditEntry {
  std::string call;          // "Cancel"
  std::optional<uid_t> uid;  // the person; nullopt = unknown
  std::string role;          // of controller/access/rules.h; "" = none was proven
  std::string from;          // where the call came from
  uint64_t job = 0;          // 0 = none in particular
  std::string arguments;     // in short; as the caller said them
  std::string outcome;       // "OK", "PERMISSION_DENIED", ...
  std::string why;           // it was not "OK"
  // Refused before the request was examined: there may be a flood of these.
  bool is_refused_call = false;
};

// Any thread; does not block.
using Audit = std::function<void(AuditEntry entry)>;

}  // namespace hpctl
