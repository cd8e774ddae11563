// SPDX-License-Identifier: Apache-2.0
// Claims of damage, which another node reads again (decision 0112).
#pragma once

#include <string>

#include "controller/core/transition.h"

namespace hpctl::core {

// The node that reads next: another one than the claimer and those that were asked, and not the
// controller's if there is a choice. nullptr = the controller.
const Node* find_reader(Transition& t, const Job& job, const DamageClaim& claim);
// Before a search: has another node read again what a worker called damaged. False = there is no
// claim, or the controller is to read, with the search.
bool ask_second_reader(Transition& t, Job& job, const std::string& reason);
// The order of the node that was asked and has not answered; nullptr = there is none.
const ConfirmDamage* present_reading(const Transition& t, JobId job);
// It is lost or late; nothing happens where the node was not asked.
void pass_over_reader(Transition& t, Job& job, const std::string& node);
// It cannot read now, which proves nothing.
void reader_failed(Transition& t, Job& job, const ConfirmDamage& order, const std::string& why);
// `damage`: what the second reader found; "" = the checkpoint is sound.
void settle_claim(Transition& t, Job& job, const DamageClaim& claim, const std::string& reader,
                  const std::string& damage);
// The checkpoint is sound for `reader`: the fault is the claimer's own.
void count_false_claim(Transition& t, const Job& job, const DamageClaim& claim,
                       const std::string& reader);

}  // namespace hpctl::core
