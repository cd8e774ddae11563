// SPDX-License-Identifier: Apache-2.0
// Loading the engine (engine.h) into hptrain.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

// The engine library beside this program, or an error.
Result<void*> load_engine();

// The same for a standby, which has time until `order_fd` has something to read: what trains on
// this machine meanwhile goes first. A nice value that was raised does not come down again, so it
// is that of a thread which ends with the load. Where an order comes before that, nobody has time
// any more, and on a busy machine such a thread hardly runs: the process becomes its own program
// once more, without arguments, and finds the order there, which it still has to read, and loads at
// the priority that it was started with. Call from the main thread, before there are others.
Result<void*> load_engine_yielding(int order_fd);

// A function of the engine.
Result<void*> engine_entry(void* library, const char* name);

template <typename Function>
Result<Function*> engine_entry(void* library, const char* name) {
  HP_TRY_ASSIGN(void* const function, engine_entry(library, name));
  return reinterpret_cast<Function*>(function);
}

}  // namespace hpctl
