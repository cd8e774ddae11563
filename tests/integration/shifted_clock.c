// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: a machine whose wall clock is SHIFTED_CLOCK_S seconds ahead.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec* time) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(clock, time);
  const char* shift = getenv("SHIFTED_CLOCK_S");
  if (result == 0 && clock == CLOCK_REALTIME && shift) time->tv_sec += atoi(shift);
  return result;
}
