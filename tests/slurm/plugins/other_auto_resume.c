// SPDX-License-Identifier: Apache-2.0
// Stands in for another vendor's plugin that owns --auto-resume: says so when it gets the option.
#include <slurm/spank.h>
#include <stdio.h>

SPANK_PLUGIN(other_auto_resume, 1)

static int on_option(int val, const char* optarg, int remote) {
  (void)val;
  if (!remote) fprintf(stderr, "other plugin: auto-resume=%s\n", optarg == NULL ? "" : optarg);
  return 0;
}

static struct spank_option option = {"auto-resume", "0|1", "of another vendor", 2, 0, on_option};

int slurm_spank_init(spank_t spank, int ac, char** av) {
  (void)ac;
  (void)av;
  spank_option_register(spank, &option);
  return 0;
}
