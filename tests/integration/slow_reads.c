// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: a file system that is slow to read from. As long as there is the file that
// SLOW_READS_WHILE names, each pread of the process takes 0.2 s longer. Of the file that
// SLOW_READS_OF names, which is no link, each takes 0.1 s longer: who trains on it leaves the
// processors to others.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int is_of(int fd, const char* path) {
  char link[64];
  char file[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, file, sizeof file);
  return size > 0 && (size_t)size == strlen(path) && memcmp(file, path, (size_t)size) == 0;
}

ssize_t pread(int fd, void* to, size_t size, off_t offset) {
  static ssize_t (*real)(int, void*, size_t, off_t);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "pread");
  const char* const name = getenv("SLOW_READS_WHILE");
  const char* const slow_file = getenv("SLOW_READS_OF");
  const struct timespec much = {0, 200 * 1000 * 1000};
  const struct timespec little = {0, 100 * 1000 * 1000};
  if (name && access(name, F_OK) == 0) nanosleep(&much, NULL);
  if (slow_file && is_of(fd, slow_file)) nanosleep(&little, NULL);
  return real(fd, to, size, offset);
}
