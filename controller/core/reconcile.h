// SPDX-License-Identifier: Apache-2.0
// The consequences of a job's rows and of the facts of the present event. The rules of rules.h only
// record; every conclusion is a row of one table here,
//
//   situation -> move
//
// and reconcile() makes the first move that fits, again and again, until none does. So no rule has
// to know what another one made of the job, and each stage is left in one place. A move ends with
// the rows of its stage complete; it never looks for the next one.
#pragma once

#include <string>
#include <vector>

#include "controller/core/transition.h"

namespace hpctl::core {

// Until the job is settled. Precondition: its rows are sound (find_damage()).
void reconcile(Transition& t, Job& job);

// The situation that still calls for a move; "" = none, as after every step().
std::string unsettled(const State& state, JobId job);

// The situations in the order in which they are looked at, with what is done about each; for the
// documentation.
struct Situation {
  std::string when;
  std::string move;
};
std::vector<Situation> situations();

}  // namespace hpctl::core
