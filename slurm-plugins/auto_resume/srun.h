// SPDX-License-Identifier: Apache-2.0
// srun: starts the controller of its step and tells the tasks where it is.
#pragma once

#include <slurm/spank.h>

// Explains a clash about --auto-resume and drops what an enclosing step left in the environment.
void hp_srun_options_read(void);

// Makes listener, token and lifeline, starts hpcontroller-step and sets the variables that
// common/worker/step_protocol.h names. On any fault: says so once, and the step runs without us.
void hp_srun_start_controller(spank_t spank);
