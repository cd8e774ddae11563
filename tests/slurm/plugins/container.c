// SPDX-License-Identifier: Apache-2.0
// Stands in for Pyxis: gives every task a mount namespace and another root, the directory that its
// argument names, in which system directories of the host appear where the root has them.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

SPANK_PLUGIN(container, 1)

static const uint32_t FIRST_SPECIAL_STEP = 0xfffffff0;  // batch, extern, interactive

static int enter(const char* root) {
  static const char* const shared[] = {"/bin", "/usr", "/lib", "/lib64", "/proc", "/dev", "/tmp"};
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
    return -1;
  for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); ++i) {
    char target[1024];
    snprintf(target, sizeof(target), "%s%s", root, shared[i]);
    if (mount(shared[i], target, NULL, MS_BIND | MS_REC, NULL) != 0) return -1;
  }
  return chroot(root) == 0 ? chdir("/") : -1;
}

int slurm_spank_task_init_privileged(spank_t spank, int ac, char** av) {
  uint32_t step = 0;
  if (spank_context() != S_CTX_REMOTE || ac != 1) return 0;
  if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step >= FIRST_SPECIAL_STEP) {
    return 0;
  }
  if (enter(av[0]) == 0) return 0;
  slurm_error("container: cannot enter %s: %s", av[0], strerror(errno));
  return -1;
}
