// SPDX-License-Identifier: Apache-2.0
// The verbs of hpctl, in the order in which `hpctl --help` lists them. One file per verb.
#pragma once

#include <vector>

#include "hpctl/command_line.h"

namespace hpctl {

const std::vector<Verb>& verbs();

Verb init_verb();
Verb submit_verb();
Verb wait_verb();
Verb status_verb();
Verb ps_verb();
Verb top_verb();
Verb watch_verb();
Verb open_verb();
Verb logs_verb();
Verb events_verb();
Verb why_verb();
Verb goodput_verb();
Verb audit_verb();
Verb cancel_verb();
Verb resume_verb();
Verb rm_verb();
Verb prune_verb();
Verb chaos_verb();
Verb ca_verb();
Verb nodes_verb();
Verb checkpoint_verb();
Verb eval_verb();
Verb generate_verb();
Verb data_verb();
Verb migrate_verb();
Verb plan_verb();
Verb completion_verb();
Verb version_verb();

}  // namespace hpctl
