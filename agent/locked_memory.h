// SPDX-License-Identifier: Apache-2.0
// Keeps the memory of this process in memory, so that no page fault of it waits for a disk or a
// file server: its program's text is read in, and what it touches from then on stays.
//
// Only where RLIMIT_MEMLOCK does not limit it. With a limit, a later allocation could fail. What
// the process starts has its own memory: locks are inherited neither over fork nor over exec. What
// it maps later is locked page by page as it touches it, so an arena of workers is not.
#pragma once

#include "common/base/result.h"

namespace hpctl::holder {

// An error says why the memory is not locked; the process works without.
Outcome lock_memory();

}  // namespace hpctl::holder
