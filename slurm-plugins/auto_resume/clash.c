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

// The arguments of this process, each ended by a zero byte; how many bytes, 0 when they cannot be
// read.
static size_t read_command_line(char* text, size_t size) {
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t length = read(fd, text, size - 1);
  close(fd);
  if (length <= 0) return 0;
  text[length] = '\0';
  return (size_t)length;
}

// The value behind OPTION=, "" for OPTION alone, NULL for another argument.
static const char* value_of(const char* argument, const char* option) {
  const size_t length = strlen(option);
  if (strncmp(argument, option, length) != 0) return NULL;
  if (argument[length] == '=') return argument + length + 1;
  return argument[length] == '\0' ? "" : NULL;
}

static char command_line[64 << 10];

bool hp_command_line_has(const char* option) {
  const size_t size = read_command_line(command_line, sizeof(command_line));
  for (const char* at = command_line; at < command_line + size; at += strlen(at) + 1) {
    if (strcmp(at, "--") == 0) return false;
    if (value_of(at, option) != NULL) return true;
  }
  return false;
}

bool hp_command_line_has_components(void) {
  static const char* const groups[] = {"--het-group", "--pack-group"};
  const size_t size = read_command_line(command_line, sizeof(command_line));
  for (const char* at = command_line; at < command_line + size; at += strlen(at) + 1) {
    if (strcmp(at, ":") == 0) return true;  // srun has no way to give it to a program
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); ++i) {
      const char* value = value_of(at, groups[i]);
      if (value != NULL && *value == '\0') value = at + strlen(at) + 1;  // the next argument
      if (value != NULL && value < command_line + size && strpbrk(value, ",-") != NULL) return true;
    }
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
