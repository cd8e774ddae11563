// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "slurm-plugins/auto_resume/options.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int option_value = -1;  // -1 = not given
static bool option_refused = false;
static char bindir[PATH_MAX] = "";

void hp_say(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  fprintf(stderr, "hpctl: %s\n", line);
}

// 0 or 1; -1 for anything else.
static int parse_switch(const char* text) {
  if (text == NULL || strcmp(text, "1") == 0) return 1;
  return strcmp(text, "0") == 0 ? 0 : -1;
}

// Slurm hands the value on to slurmstepd, where it has been checked already.
static int on_option(int val, const char* optarg, int remote) {
  const char* const name = val == 0 ? "auto-resume" : "hpctl-resume";
  const int value = parse_switch(optarg);
  if (value < 0) {
    if (!remote) {
      hp_say("--%s=%s is neither 0 nor 1; write --%s=1 to restart failed tasks, --%s=0 not to",
             name, optarg, name, name);
    }
    return -1;
  }
  option_value = value;
  return 0;
}

static struct spank_option options[] = {
    {"auto-resume", "0|1", "[hpctl] restart the step's tasks when one fails (1) or not (0)", 2, 0,
     on_option},
    {"hpctl-resume", "0|1", "[hpctl] the same, where --auto-resume belongs to another plugin", 2, 1,
     on_option},
};

// DIR/lib/hpctl_auto_resume.so -> DIR/bin
static void find_bindir(void) {
  Dl_info self;
  if (dladdr((void*)&hp_register_options, &self) == 0 || self.dli_fname == NULL) return;
  const char* const end = strrchr(self.dli_fname, '/');
  if (end == NULL) return;
  char beside[PATH_MAX];
  snprintf(beside, sizeof(beside), "%.*s/../bin", (int)(end - self.dli_fname), self.dli_fname);
  if (realpath(beside, bindir) == NULL) snprintf(bindir, sizeof(bindir), "%s", beside);
}

int hp_register_options(spank_t spank, int ac, char** av) {
  find_bindir();
  for (int i = 0; i < ac; ++i) {
    if (strncmp(av[i], "bindir=", 7) == 0 && av[i][7] == '/') {
      snprintf(bindir, sizeof(bindir), "%s", av[i] + 7);
    } else {
      slurm_error("hpctl_auto_resume: unknown argument %s in plugstack.conf; known: bindir=/DIR",
                  av[i]);
    }
  }
  option_refused = spank_option_register(spank, &options[0]) != ESPANK_SUCCESS;
  if (spank_option_register(spank, &options[1]) != ESPANK_SUCCESS) {
    slurm_error("hpctl_auto_resume: Slurm refuses the option --hpctl-resume");
  }
  return 0;
}

bool hp_resume_wanted(void) {
  if (option_value >= 0) return option_value == 1;
  const char* const text = getenv(HP_DEFAULT_NAME);
  if (text == NULL) return false;
  const int value = parse_switch(text);
  if (value < 0) hp_say(HP_DEFAULT_NAME "=%s is neither 0 nor 1; taken as 0", text);
  return value == 1;
}

bool hp_option_given(void) { return option_value >= 0; }

bool hp_option_refused(void) { return option_refused; }

bool hp_program_path(const char* name, char* path, size_t size) {
  const int length = snprintf(path, size, "%s/%s", bindir, name);
  return length > 0 && (size_t)length < size;
}
