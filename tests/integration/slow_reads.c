// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: a file system that is slow to read from. As long as there is the file that
// SLOW_READS_WHILE names, each pread of the process takes 0.2 s longer.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

ssize_t pread(int fd, void* to, size_t size, off_t offset) {
  static ssize_t (*real)(int, void*, size_t, off_t);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "pread");
  const char* const name = getenv("SLOW_READS_WHILE");
  const struct timespec more = {0, 200 * 1000 * 1000};
  if (name && access(name, F_OK) == 0) nanosleep(&more, NULL);
  return real(fd, to, size, offset);
}
