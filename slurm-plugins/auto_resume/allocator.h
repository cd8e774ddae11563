// SPDX-License-Identifier: Apache-2.0
// sbatch and salloc: the option becomes the default of every srun of the job.
#pragma once

void hp_allocator_options_read(void);
