// SPDX-License-Identifier: Apache-2.0
#include "slurm-plugins/auto_resume/allocator.h"

#include <stdlib.h>

#include "slurm-plugins/auto_resume/options.h"

void hp_allocator_options_read(void) {
  if (hp_option_given()) setenv(HP_DEFAULT_NAME, hp_resume_wanted() ? "1" : "0", 1);
}
