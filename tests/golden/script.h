// SPDX-License-Identifier: Apache-2.0
// Scenario scripts for the core: a line per thing that happens to a job, and a report of what the
// core made of it, which reads like an incident report. One job per script.
//
//   submit [nodes N] [workers N] [command] [resume none|PATH] [max-restarts N] [window-s N]
//     [hang-s N] [uid N]
//     [cluster|container] [limit NAME MS] [straggler off|warn|evict] [tells-ready] [mirror]
//     [confirms] [controller-on NODE]
//   settle                    a healthy cluster carries out every open action
//   settle KIND               only the open actions of that kind (LaunchNode, ...)
//   answer KIND NODE          only the node carries out its open action of that kind
//   wait MS                   time passes; deadlines on the way fire
//   progress STEP | commit STEP | disk-full | prunes VERIFIED DELETED... | unsound WHY
//   mirror PATH|- STEP [WHY]  what the mirror holds, and why the newest is not copied there
//   trains on|off             whether ranks are seen to move when a deadline comes
//   directory NAME|- STEP     the newest valid checkpoint is NAME, at STEP; - = there is none
//   claims true|false         what the second reader finds of a claim of damage (true at first);
//                             with `confirms` that is another node, else the controller
//   unreadable NODE words ... it cannot read again what a worker called damaged
//   recorded NAME...          earlier generations have recorded these as damaged
//   exit RANK code|signal N step N [words of the worker ...]
//   stale-exit RANK generation N
//   left-together RANK... [lost RANK...]   of one node, in one report; the latter untold
//   lost NODE words ... | disconnect NODE | reconnect NODE [without RANK]
//   judge NODE                what its silence since `disconnect` means by now; steps prove that
//                             it trains
//   replaced NODE             the node registers as another life
//   revenant NODE             the life before the present one registers once more
//   unfit NUMBER STEP nan|loss|gradient skipped|rolled-back|stopped|gave-up [same|other RANK]
//   hang RANK|nobody words ... | cancel uid N
//   slow RANK words ... | fast NODE   its node holds the others up, and does no more
//   drained NODE words ... | undrained NODE words ...   by the scheduler
//   ready NODE                the spare could take ranks at once (of a job that has tells-ready)
//   suspended | resumed       by the scheduler (scontrol suspend)
//   taken                     another controller created the generation first
//   fail KIND NODE|- [permanent] words ...
//   restart                   the controller dies and loads its rows again
//   why                       prints the chain behind the present state
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl::core {

// The report of the script, or which line cannot be understood.
Result<std::string> run_script(const std::string& text);

}  // namespace hpctl::core
