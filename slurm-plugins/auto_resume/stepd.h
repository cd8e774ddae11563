// SPDX-License-Identifier: Apache-2.0
// slurmstepd: puts the shim in place of a task's program.
#pragma once

#include <slurm/spank.h>

// Before the tasks are forked, and before a plugin such as Pyxis changes their root: the shim is
// opened here and later executed through its descriptor.
void hp_stepd_open_shim(spank_t spank);

// In the forked task, as the user.
void hp_stepd_wrap_task(spank_t spank);
