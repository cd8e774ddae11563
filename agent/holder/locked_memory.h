// SPDX-License-Identifier: Apache-2.0
// Keeps the memory of this process in memory, so no page fault of it waits for a disk or a file
// server: its program's text is read in, and pages stay from the first touch on.
//
// Only if RLIMIT_MEMLOCK does not limit it. With a limit, a later allocation could fail. Children
// have separate memory: locks are inherited neither over fork nor over exec. Memory that is mapped
// later is locked page by page when this process touches it, so an arena of workers is not.
#pragma once

#include "common/base/result.h"

namespace hpctl::holder {

// An error says why the memory is not locked; the process works without.
Outcome lock_memory();

}  // namespace hpctl::holder
