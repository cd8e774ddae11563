// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "slurm-plugins/auto_resume/clash.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "slurm-plugins/auto_resume/options.h"

static const char OPTION[] = "auto-resume";

bool hp_command_line_has(const char* option) {
  char text[64 << 10];
  const size_t length = strlen(option);
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t size = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (size <= 0) return false;
  text[size] = '\0';
  for (const char* argument = text; argument < text + size; argument += strlen(argument) + 1) {
    if (strcmp(argument, "--") == 0) return false;
    if (strncmp(argument, option, length) != 0) continue;
    if (argument[length] == '\0' || argument[length] == '=') return true;
  }
  return false;
}

// The loaded objects in the order of loading, which is the order of plugstack.conf.
enum { MAX_OBJECTS = 512 };
struct objects {
  const char* paths[MAX_OBJECTS];
  size_t count;
};

// Whether the file mentions the option as a string of its own.
static bool mentions_option(const char* path) {
  bool found = false;
  struct stat st;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  if (fstat(fd, &st) == 0 && st.st_size > 0) {
    void* const bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes != MAP_FAILED) {
      found = memmem(bytes, (size_t)st.st_size, OPTION, sizeof(OPTION)) != NULL;
      munmap(bytes, (size_t)st.st_size);
    }
  }
  close(fd);
  return found;
}

// Only SPANK plugins; the C library need not be searched for words.
static bool is_spank_plugin(const char* path) {
  void* const handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == NULL) return false;
  const char* const type = dlsym(handle, "plugin_type");
  const bool found = type != NULL && strcmp(type, "spank") == 0;
  dlclose(handle);
  return found;
}

static int note_object(struct dl_phdr_info* info, size_t size, void* data) {
  struct objects* const objects = data;
  (void)size;
  if (info->dlpi_name == NULL || info->dlpi_name[0] == '\0') return 0;
  if (objects->count < MAX_OBJECTS) objects->paths[objects->count++] = info->dlpi_name;
  return 0;
}

// Path of another plugin that knows the option, or NULL; whether it was loaded before this one.
static const char* find_other(const char* self, bool* is_first) {
  static struct objects objects;
  bool past_self = false;
  objects.count = 0;
  dl_iterate_phdr(note_object, &objects);
  for (size_t i = 0; i < objects.count; ++i) {
    const char* const path = objects.paths[i];
    if (strcmp(path, self) == 0) {
      past_self = true;
    } else if (is_spank_plugin(path) && mentions_option(path)) {
      *is_first = !past_self;
      return path;
    }
  }
  return NULL;
}

void hp_explain_clash(void) {
  bool other_is_first = hp_option_refused();
  Dl_info self;
  if (!hp_command_line_has("--auto-resume")) return;
  if (dladdr((void*)&hp_explain_clash, &self) == 0 || self.dli_fname == NULL) return;
  const char* const other = find_other(self.dli_fname, &other_is_first);
  if (other == NULL && !hp_option_refused()) return;
  if (other_is_first) {
    hp_say(
        "--auto-resume belongs to %s here, which stands before hpctl in plugstack.conf; for "
        "hpctl's restarts use --hpctl-resume=1 or " HP_DEFAULT_NAME "=1",
        other == NULL ? "another plugin" : other);
  } else {
    hp_say(
        "--auto-resume is hpctl's here; %s stands after it in plugstack.conf and does not see "
        "the option",
        other);
  }
}
