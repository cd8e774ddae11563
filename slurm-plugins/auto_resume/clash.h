// SPDX-License-Identifier: Apache-2.0
// Who else wants --auto-resume? On HyperPod AWS's plugin does, and Slurm silently gives an option
// to the plugin that registers it first.
#pragma once

#include <stdbool.h>

// Explains the clash in one line, when the user asked for the option and two plugins know it.
void hp_explain_clash(void);

// True when srun was called with this option, alone or as OPTION=VALUE.
bool hp_command_line_has(const char* option);

// True when srun was called for a step of several components: with " : " between them, or with
// several groups of a heterogeneous job.
bool hp_command_line_has_components(void);
