// SPDX-License-Identifier: Apache-2.0
// Fail-points: named places where a test can kill this process with SIGKILL, to prove that a crash
// there loses nothing and repeats nothing.
//
//   HP_FAILPOINT("store.commit.before");
//
// Armed by HPCTL_FAILPOINT=NAME or NAME:K (die at the K-th pass, default 1), read once. Unarmed, a
// pass costs one load. The build collects every literal name (tools/failpoints) so that a test can
// enumerate them; a name must therefore be a string literal, unique in the tree.
#pragma once

namespace hpctl {

void failpoint_passed(const char* name);

// The same, but true at the armed pass instead of death: where a test wants a wrong value.
bool failpoint_due(const char* name);

}  // namespace hpctl

#define HP_FAILPOINT(name) ::hpctl::failpoint_passed(name)
