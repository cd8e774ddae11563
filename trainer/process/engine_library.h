// SPDX-License-Identifier: Apache-2.0
// Loading the engine (engine.h) into hptrain.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

// The engine library beside this program, or an error.
Result<void*> load_engine();

// The same for a standby, which has time until `order_fd` has something to read: other training on
// this machine goes first. A raised nice value cannot be lowered again, so it belongs to a thread
// which ends with the load. If an order comes before that, the load is urgent, and on a busy
// machine such a thread hardly runs. The process then executes its own program once more, without
// arguments. It finds the unread order there, and loads at the priority that it was started with.
// Call from the main thread, before there are others.
Result<void*> load_engine_yielding(int order_fd);

// A function of the engine.
Result<void*> engine_entry(void* library, const char* name);

template <typename Function>
Result<Function*> engine_entry(void* library, const char* name) {
  HP_TRY_ASSIGN(void* const function, engine_entry(library, name));
  return reinterpret_cast<Function*>(function);
}

}  // namespace hpctl
