// SPDX-License-Identifier: Apache-2.0
// HP_CHECK: an invariant of our own code. Never used for input, files, messages or anything a user
// or a peer can get wrong; those return Result<T>. Active in release builds: a process that has
// lost an invariant must stop before it acts on wrong state.
#pragma once

#include <cstdio>
#include <cstdlib>

#define HP_CHECK(condition)                                                                 \
  do {                                                                                      \
    if (!(condition)) [[unlikely]] {                                                        \
      std::fprintf(stderr, "%s:%d: HP_CHECK failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                         \
    }                                                                                       \
  } while (false)
