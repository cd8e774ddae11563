// SPDX-License-Identifier: Apache-2.0
// Loading the engine (engine.h) into hptrain.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

// The engine library beside this program, or an error.
Result<void*> load_engine();

// The same for a standby: what trains on this machine meanwhile goes first. In a thread of its own,
// because a nice value is a thread's, and one that was raised does not come down again.
Result<void*> load_engine_yielding();

// A function of the engine.
Result<void*> engine_entry(void* library, const char* name);

template <typename Function>
Result<Function*> engine_entry(void* library, const char* name) {
  HP_TRY_ASSIGN(void* const function, engine_entry(library, name));
  return reinterpret_cast<Function*>(function);
}

}  // namespace hpctl
