// SPDX-License-Identifier: Apache-2.0
// recovery.hang_rules of job.yaml: a list of mappings, whose patterns are compiled here, so that a
// wrong one is reported with its line before anything is submitted.
#pragma once

#include <vector>

#include "common/job/hang_rule.h"
#include "common/jobfile/yaml_value.h"

namespace hpctl {

void read_hang_rules(YamlValue& value, std::vector<HangRule>& rules);

}  // namespace hpctl
