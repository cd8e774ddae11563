// SPDX-License-Identifier: Apache-2.0
#include "hpctl/verbs.h"

namespace hpctl {

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table = {
      init_verb(),     submit_verb(),     wait_verb(),   status_verb(),     ps_verb(),
      top_verb(),      watch_verb(),      open_verb(),   logs_verb(),       events_verb(),
      why_verb(),      goodput_verb(),    audit_verb(),  cancel_verb(),     resume_verb(),
      rm_verb(),       prune_verb(),      nodes_verb(),  checkpoint_verb(), eval_verb(),
      generate_verb(), data_verb(),       plan_verb(),   migrate_verb(),    chaos_verb(),
      ca_verb(),       completion_verb(), version_verb()};
  return table;
}

}  // namespace hpctl
