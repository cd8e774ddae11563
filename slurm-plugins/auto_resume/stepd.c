// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "slurm-plugins/auto_resume/stepd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "slurm-plugins/auto_resume/options.h"

// Step ids from here on are not srun's: extern, batch script, interactive (slurm.h
// SLURM_MAX_NORMAL_ STEP_ID; spelled out because spank.h does not bring it).
static const uint32_t FIRST_SPECIAL_STEP = 0xfffffff0;

static int shim = -1;

static bool is_supervised(spank_t spank) {
  char port[16];
  uint32_t step = 0;
  if (spank_getenv(spank, "SLURM_HPCTL_STEP_PORT", port, sizeof(port)) != ESPANK_SUCCESS)
    return false;
  return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step < FIRST_SPECIAL_STEP;
}

// What the program must not see, since no shim will take it away.
static void unset_all(spank_t spank) {
  spank_unsetenv(spank, "SLURM_HPCTL_STEP_PORT");
  spank_unsetenv(spank, "SLURM_HPCTL_STEP_TOKEN");
}

void hp_stepd_open_shim(spank_t spank) {
  char path[PATH_MAX];
  if (!is_supervised(spank) || !hp_program_path("hpagent-shim", path, sizeof(path))) return;
  shim = open(path, O_PATH | O_CLOEXEC);
  if (shim < 0) {
    slurm_error("hpctl: cannot open %s: %s; this node runs its tasks without auto-resume", path,
                strerror(errno));
  }
}

// Slurm's process tracking decides who gets a step's signals: these two signal every process of it,
// the others only the processes that slurmstepd itself started, which is the shim.
static int is_tree_tracking(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  (void)data;
  return strstr(info->dlpi_name, "/proctrack_linuxproc.so") != NULL ||
         strstr(info->dlpi_name, "/proctrack_pgid.so") != NULL;
}

// The fields of kTaskName in common/worker/step_protocol.h.
static bool describe_task(spank_t spank, char* text, size_t size) {
  uint32_t rank = 0;
  uint32_t tasks = 0;
  uint32_t local_tasks = 0;
  uint32_t node = 0;
  uint32_t nodes = 0;
  int local_rank = 0;
  if (spank_get_item(spank, S_TASK_GLOBAL_ID, &rank) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_TASK_ID, &local_rank) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &local_tasks) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_NODEID, &node) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_NNODES, &nodes) != ESPANK_SUCCESS) {
    return false;
  }
  const int signals_all = dl_iterate_phdr(is_tree_tracking, NULL);
  snprintf(text, size, "%u %u %d %u %u %u %d", rank, tasks, local_rank, local_tasks, node, nodes,
           signals_all);
  return true;
}

void hp_stepd_wrap_task(spank_t spank) {
  static char shim_path[32];  // outlives this call: Slurm executes it
  char task[96];
  char stacks[PATH_MAX];
  char** argv = NULL;
  int argc = 0;
  if (!is_supervised(spank)) return;
  if (shim < 0 || spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1 ||
      !describe_task(spank, task, sizeof(task)) ||
      spank_setenv(spank, "HPCTL_STEP_TASK", task, 1) != ESPANK_SUCCESS ||
      spank_setenv(spank, "HPCTL_STEP_PROGRAM", argv[0], 1) != ESPANK_SUCCESS) {
    unset_all(spank);
    return;
  }
  // Without it a step that hangs is started again all the same, and nobody learns where it stood.
  if (hp_program_path("hpstacks", stacks, sizeof(stacks)))
    spank_setenv(spank, "HPCTL_STEP_STACKS", stacks, 1);
  // By descriptor, because the task may have another root by the time Slurm executes it.
  snprintf(shim_path, sizeof(shim_path), "/proc/self/fd/%d", shim);
  argv[0] = shim_path;
}
