// SPDX-License-Identifier: Apache-2.0
// hpctl_auto_resume: Slurm's plugin behind `srun --auto-resume=1` (docs/auto-resume.md).
//
//   srun                                    slurmstepd, for each task
//   init           register options         init       register options
//   init_post_opt  who owns the option?     user_init  open the shim
//   local_user_init                         task_init  shim in place of argv[0]
//     listener, token, lifeline;
//     start hpcontroller-step
//
// Three rules. It wraps and never replaces: whatever Slurm and later plugins do to a task still
// happens, because the shim is executed where the program would have been. It fails open: a fault
// of ours never costs the user's job. It keeps out of what it does not know: batch scripts, extern
// and interactive steps.
//
// This file only says which context does what.
#include <slurm/spank.h>

#include "slurm-plugins/auto_resume/allocator.h"
#include "slurm-plugins/auto_resume/options.h"
#include "slurm-plugins/auto_resume/srun.h"
#include "slurm-plugins/auto_resume/stepd.h"

SPANK_PLUGIN(hpctl_auto_resume, 1)

int slurm_spank_init(spank_t spank, int ac, char** av) {
  switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
    case S_CTX_REMOTE:
      return hp_register_options(spank, ac, av);
    default:
      return 0;
  }
}

int slurm_spank_init_post_opt(spank_t spank, int ac, char** av) {
  (void)spank;
  (void)ac;
  (void)av;
  switch (spank_context()) {
    case S_CTX_LOCAL:
      hp_srun_options_read();
      return 0;
    case S_CTX_ALLOCATOR:
      hp_allocator_options_read();
      return 0;
    default:
      return 0;
  }
}

int slurm_spank_local_user_init(spank_t spank, int ac, char** av) {
  (void)ac;
  (void)av;
  hp_srun_start_controller(spank);
  return 0;
}

int slurm_spank_user_init(spank_t spank, int ac, char** av) {
  (void)ac;
  (void)av;
  if (spank_context() == S_CTX_REMOTE) hp_stepd_open_shim(spank);
  return 0;
}

int slurm_spank_task_init(spank_t spank, int ac, char** av) {
  (void)ac;
  (void)av;
  if (spank_context() == S_CTX_REMOTE) hp_stepd_wrap_task(spank);
  return 0;
}
