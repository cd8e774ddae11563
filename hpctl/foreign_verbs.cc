// SPDX-License-Identifier: Apache-2.0
#include "hpctl/foreign_verbs.h"

#include <algorithm>

namespace hpctl {
namespace {

constexpr ForeignVerb kForeignVerbs[] = {
    {"run", "submit"},
    {"start", "submit"},
    {"launch", "submit"},
    {"create", "submit"},
    {"apply", "submit"},
    {"train", "submit"},
    {"sbatch", "submit"},
    {"srun", "submit"},
    {"torchrun", "submit"},
    {"validate", "submit --dry-run"},
    {"check", "submit --dry-run"},
    {"lint", "submit --dry-run"},
    {"dry-run", "submit --dry-run"},
    {"list", "ps"},
    {"ls", "ps"},
    {"get", "ps"},
    {"jobs", "ps"},
    {"queue", "ps"},
    {"squeue", "ps"},
    {"stop", "cancel"},
    {"kill", "cancel"},
    {"delete", "rm"},
    {"remove", "rm"},
    {"forget", "rm"},
    {"clean", "prune"},
    {"cleanup", "prune"},
    {"gc", "prune"},
    {"purge", "prune"},
    {"restart", "resume"},
    {"continue", "resume"},
    {"rerun", "resume"},
    {"retry", "resume"},
    {"requeue", "resume"},
    {"abort", "cancel"},
    {"terminate", "cancel"},
    {"end", "cancel"},
    {"scancel", "cancel"},
    {"down", "cancel"},
    {"describe", "status"},
    {"show", "status"},
    {"info", "status"},
    {"inspect", "status"},
    {"log", "logs"},
    {"output", "logs"},
    {"stdout", "logs"},
    {"tail", "logs --follow"},
    {"follow", "logs --follow"},
    {"attach", "logs --follow"},
    {"history", "events"},
    {"event", "events"},
    {"sacct", "events"},
    {"explain", "why"},
    {"diagnose", "why"},
    {"debug", "why"},
    {"reason", "why"},
    {"monitor", "top"},
    {"htop", "top"},
    {"health", "watch"},
    {"alerts", "watch"},
    {"alert", "watch"},
    {"dashboard", "open"},
    {"ui", "open"},
    {"web", "open"},
    {"efficiency", "goodput"},
    {"sinfo", "nodes"},
    {"node", "nodes"},
    {"hosts", "nodes"},
    {"cordon", "nodes quarantine"},
    {"drain", "nodes quarantine"},
    {"exclude", "nodes quarantine"},
    {"uncordon", "nodes release"},
    {"undrain", "nodes release"},
    {"checkpoints", "checkpoint ls"},
    {"ckpt", "checkpoint ls"},
    {"import", "checkpoint import"},
    {"convert", "checkpoint import"},
    {"export", "checkpoint export"},
    {"estimate", "plan"},
    {"memory", "plan"},
    {"prepare", "data prepare"},
    {"tokenize", "data prepare"},
    {"preprocess", "data prepare"},
    {"inject", "chaos"},
    {"fault", "chaos"},
    {"faults", "chaos"},
};

}  // namespace

std::span<const ForeignVerb> foreign_verbs() { return kForeignVerbs; }

std::string_view find_foreign_verb(std::string_view word) {
  const auto found = std::find_if(std::begin(kForeignVerbs), std::end(kForeignVerbs),
                                  [&](const ForeignVerb& verb) { return verb.word == word; });
  return found == std::end(kForeignVerbs) ? std::string_view() : found->ours;
}

}  // namespace hpctl
