/* SPDX-License-Identifier: Apache-2.0 */
/* What a test and the preloaded storage_outage.c share. */
#pragma once

#include <stdint.h>

#define STORAGE_PAUSES (-1)

struct StorageOutage {
  int32_t error;        /* 0 = all is well, an errno, or STORAGE_PAUSES */
  uint32_t calls;       /* calls that failed or waited */
  char program[64];     /* names between spaces, "" = all; changed only while `error` is 0 */
  char directory[1024]; /* likewise */
};
