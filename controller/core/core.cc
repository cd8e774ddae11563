// SPDX-License-Identifier: Apache-2.0
#include "controller/core/core.h"

#include "common/base/check.h"
#include "controller/core/reconcile.h"
#include "controller/core/rules.h"

namespace hpctl::core {

StepResult step(State& state, const Event& event) {
  HP_CHECK(event.seq.value == state.last_seq.value + 1);
  HP_CHECK(event.now_ms >= state.now_ms);
  state.last_seq = event.seq;
  state.now_ms = event.now_ms;
  StepResult result;
  result.dirty.meta = true;
  if (!std::holds_alternative<Tick>(event.body)) result.log.push_back(describe(state, event));
  Transition transition(state, event, result);
  std::visit([&](const auto& body) { on(transition, body); }, event.body);
  for (const JobId id : transition.touched()) reconcile(transition, *transition.job(id));
  // An action issued and withdrawn within one step must not be performed.
  std::erase_if(result.actions, [&](const Action& a) { return !state.outbox.contains(a.id); });
  return result;
}

void merge(Dirty& into, const Dirty& from) {
  into.meta = into.meta || from.meta;
  into.jobs.insert(from.jobs.begin(), from.jobs.end());
  into.nodes.insert(from.nodes.begin(), from.nodes.end());
  into.slots.insert(from.slots.begin(), from.slots.end());
  into.outbox.insert(from.outbox.begin(), from.outbox.end());
}

}  // namespace hpctl::core
