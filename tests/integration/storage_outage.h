/* SPDX-License-Identifier: Apache-2.0 */
/* What a test and the preloaded storage_outage.c share. */
#pragma once

#include <stdint.h>

#define STORAGE_PAUSES (-1)
#define STORAGE_IS_SLOW (-2)

struct StorageOutage {
  int32_t error;        /* 0 = all is well, an errno, STORAGE_PAUSES or STORAGE_IS_SLOW */
  uint32_t calls;       /* calls that failed or waited */
  uint32_t kib_per_s;   /* of STORAGE_IS_SLOW */
  char program[64];     /* names between spaces, "" = all; changed only while `error` is 0 */
  char directory[1024]; /* likewise */
};
