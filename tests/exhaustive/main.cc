// SPDX-License-Identifier: Apache-2.0
// hpctl_exhaustive: the controller core in a small world, in every order of events.
//
//   hpctl_exhaustive --smoke | --full         the scopes of the tests
//   hpctl_exhaustive --mutants                worlds that lack a mend: each must be found
//   hpctl_exhaustive [--nodes N] [--spares N] [--replicas] [--steps N] [--every N] [--keep N]
//                    [--mirror] [--readers] [--from-submit | --lost-node] [--faults N]
//                    [--with FAULT,...] [--mutant NAME] [--depth N]
//                    [--states N]                                                   one scope
//   ... --replay "kill0 take0 ..."            the moves of a trace, and then those of a healthy
//                                             cluster, with what the core made of them
//
// Exit code 0 = every world held; 1 = a violation, printed with the moves that lead to it; 2 = an
// option that there is not.
#include "tests/exhaustive/command.h"

int main(int argc, char** argv) { return hpctl::exhaustive::run_command(argc, argv); }
