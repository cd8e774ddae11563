// SPDX-License-Identifier: Apache-2.0
// A node reads the newest checkpoint, or the newest copy, before older ones are deleted.
#pragma once

#include <cstdint>
#include <string>

#include "controller/core/transition.h"

namespace hpctl::core {

bool is_to_verify(const Verification& verification);
// Another reader could not read, or found damage.
bool has_met_trouble(const Verification& verification);
// The node that is to read next; nullptr = none, or the one that did found it sound: the controller
// is to delete, and to verify before if no node has.
const Node* next_reader(Transition& t, const Job& job, const Verification& verification);
void ask_to_verify(Transition& t, Job& job, const Verification& verification, const Node& reader);
// The node has answered, or will not.
void verification_answered(Transition& t, Job& job, const ConfirmDamage& order,
                           DamageVerdict verdict, const std::string& what);
// The controller has verified, and found no damage where the verification says that a node did.
void settle_verification(Transition& t, const Job& job, const Verification& verification);
// While a node reads for a deletion; 0 = none does.
int64_t verification_deadline(const Transition& t, const Job& job);
// A generation is prepared, or steps are undone: what was to be verified may count no more.
void forget_verifications(Transition& t, Job& job);

}  // namespace hpctl::core
