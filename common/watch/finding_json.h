// SPDX-License-Identifier: Apache-2.0
// A finding as programs get it (docs/cli.md, docs/notifications.md). Include from .cc files only:
// the JSON library is heavy.
#pragma once

#include "common/base/json.h"
#include "common/watch/finding.h"

namespace hpctl {

inline nlohmann::ordered_json finding_json(const Finding& finding) {
  return {{"kind", to_word(finding.kind)},
          {"severity", to_word(finding.severity)},
          {"job", finding.job.value},
          {"name", finding.name},
          {"user", finding.user},
          {"uid", finding.owner},
          {"node", finding.node},
          {"since_ms", finding.since.unix_ms()},
          {"what", finding.what},
          {"do", finding.action},
          {"runbook", runbook_of(finding.kind)}};
}

}  // namespace hpctl
