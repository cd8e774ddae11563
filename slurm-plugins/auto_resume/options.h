// SPDX-License-Identifier: Apache-2.0
// --auto-resume[=0|1], --hpctl-resume[=0|1], HPCTL_AUTO_RESUME=0|1, and the plugin's own arguments
// in plugstack.conf. The command line overrides the environment.
#pragma once

#include <slurm/spank.h>
#include <stdbool.h>
#include <stddef.h>

// Name of the variable that sbatch and salloc hand to the sruns of their job.
#define HP_DEFAULT_NAME "HPCTL_AUTO_RESUME"

// For slurm_spank_init. Arguments: bindir=DIR (where hpagent-shim and hpcontroller-step are;
// default
// ../bin beside this library). 0, or -1 when an argument is wrong.
int hp_register_options(spank_t spank, int ac, char** av);

// The requested mode. Unset: neither option nor variable.
bool hp_resume_wanted(void);
// One of the options was on the command line and reached this plugin.
bool hp_option_given(void);
// Slurm refused our registration of --auto-resume.
bool hp_option_refused(void);

// DIR/NAME in `path`, which has `size` bytes; false when it does not fit.
bool hp_program_path(const char* name, char* path, size_t size);

// "hpctl: " and a line to stderr. For srun, sbatch and salloc.
void hp_say(const char* format, ...) __attribute__((format(printf, 1, 2)));
