// SPDX-License-Identifier: Apache-2.0
// Verbs of other programs (kubectl, Slurm, docker, Ray, SkyPilot) and the words of ours that do the
// same. None of them is accepted: the error names ours.
#pragma once

#include <span>
#include <string_view>

namespace hpctl {

struct ForeignVerb {
  std::string_view word;
  std::string_view ours;  // begins with a verb of hpctl
};
std::span<const ForeignVerb> foreign_verbs();
// "" = not known.
std::string_view find_foreign_verb(std::string_view word);

}  // namespace hpctl
