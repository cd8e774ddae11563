// SPDX-License-Identifier: Apache-2.0
// Stands in for Pyxis: gives a task a mount namespace and another root, in which system directories
// of the host appear where the root has them. The root is the directory that --container-image
// names, with what --container-mounts lists (FROM:TO,...); or for every task the plugin's argument.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

SPANK_PLUGIN(container, 1)

static const uint32_t FIRST_SPECIAL_STEP = 0xfffffff0;  // batch, extern, interactive
static char image[1024];
static char mounts[8192];

static int keep(char* to, size_t size, const char* value) {
  return snprintf(to, size, "%s", value) < (int)size ? 0 : -1;
}
static int keep_image(int val, const char* optarg, int remote) {
  (void)val, (void)remote;
  return keep(image, sizeof(image), optarg);
}
static int keep_mounts(int val, const char* optarg, int remote) {
  (void)val, (void)remote;
  return keep(mounts, sizeof(mounts), optarg);
}

int slurm_spank_init(spank_t spank, int ac, char** av) {
  static struct spank_option options[] = {
      {"container-image", "DIR", "a directory as root", 1, 0, keep_image},
      {"container-mounts", "FROM:TO,...", "what else is seen there", 1, 0, keep_mounts}};
  (void)ac, (void)av;
  for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); ++i) {
    if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) return -1;
  }
  return 0;
}

// PATH and its parents under `root`; of a file, an empty one.
static int make_target(const char* target, const char* source) {
  char path[2048];
  struct stat status;
  if (stat(source, &status) != 0 || keep(path, sizeof(path), target) != 0) return -1;
  for (char* slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(path, 0755);
    *slash = '/';
  }
  if (S_ISDIR(status.st_mode)) return mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : -1;
  FILE* file = fopen(path, "a");
  return file != NULL ? fclose(file) : -1;
}

static int bind_listed(const char* root) {
  char* rest = mounts;
  for (char* pair = strsep(&rest, ","); pair != NULL && *pair != '\0'; pair = strsep(&rest, ",")) {
    char target[2048];
    const char* source = strsep(&pair, ":");
    snprintf(target, sizeof(target), "%s%s", root, pair != NULL ? pair : source);
    if (make_target(target, source) != 0) return -1;
    if (mount(source, target, NULL, MS_BIND | MS_REC, NULL) != 0) return -1;
  }
  return 0;
}

static int enter(const char* root) {
  static const char* const shared[] = {"/bin", "/usr", "/lib", "/lib64", "/proc", "/dev", "/tmp"};
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
    return -1;
  for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); ++i) {
    char target[2048];
    snprintf(target, sizeof(target), "%s%s", root, shared[i]);
    if (access(target, F_OK) != 0) continue;
    if (mount(shared[i], target, NULL, MS_BIND | MS_REC, NULL) != 0) return -1;
  }
  if (bind_listed(root) != 0) return -1;
  return chroot(root) == 0 ? chdir("/") : -1;
}

int slurm_spank_task_init_privileged(spank_t spank, int ac, char** av) {
  uint32_t step = 0;
  const char* root = *image != '\0' ? image : ac == 1 ? av[0] : NULL;
  if (spank_context() != S_CTX_REMOTE || root == NULL) return 0;
  if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step >= FIRST_SPECIAL_STEP) {
    return 0;
  }
  if (enter(root) == 0) return 0;
  slurm_error("container: cannot enter %s: %s", root, strerror(errno));
  return -1;
}
