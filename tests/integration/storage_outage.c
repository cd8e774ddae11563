// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: a directory on storage that fails. The file that STORAGE_OUTAGE names is a
// struct StorageOutage (storage_outage.h) that the test writes and every process maps. While its
// `error` is an errno, each call on a path at or below its `directory`, or on a descriptor of such
// a file, fails with it; while it is STORAGE_PAUSES, such calls wait until it changes; while it is
// STORAGE_IS_SLOW, each write takes as long as on storage of that speed. `program` limits that to
// the processes of these names.
#define _GNU_SOURCE
#include "tests/integration/storage_outage.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static struct StorageOutage* outage;

__attribute__((constructor)) static void map_outage(void) {
  const char* const name = getenv("STORAGE_OUTAGE");
  if (!name) return;
  const int fd = open(name, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* const at = mmap(NULL, sizeof *outage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at != MAP_FAILED) outage = at;
}

static int is_meant(const char* programs) {
  const char* const name = program_invocation_short_name;
  const size_t size = strlen(name);
  for (const char* at = programs; *at; at += strcspn(at, " ")) {
    at += strspn(at, " ");
    if (strncmp(at, name, size) == 0 && (at[size] == 0 || at[size] == ' ')) return 1;
  }
  return programs[0] == 0;
}

static int is_on(void) {
  return outage && __atomic_load_n(&outage->error, __ATOMIC_ACQUIRE) != 0 &&
         is_meant(outage->program);
}

static int is_below(const char* path) {
  const size_t size = strlen(outage->directory);
  return strncmp(path, outage->directory, size) == 0 && (path[size] == 0 || path[size] == '/');
}

static int of_descriptor(int fd) {
  char link[64];
  char file[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, file, sizeof file - 1);
  if (size <= 0) return 0;
  file[size] = 0;
  return is_below(file);
}

static int of_path(int directory, const char* path) {
  if (!path) return 0;
  if (path[0] == '/') return is_below(path);
  if (directory != AT_FDCWD) return of_descriptor(directory);
  char where[PATH_MAX];
  return getcwd(where, sizeof where) && is_below(where);
}

static void wait_a_little(void) {
  const struct timespec little = {0, 2 * 1000 * 1000};
  nanosleep(&little, NULL);
}

// 1 = the call fails with errno; 0 = it is made.
static int suffers(void) {
  int error = __atomic_load_n(&outage->error, __ATOMIC_ACQUIRE);
  if (error == STORAGE_IS_SLOW) return 0;
  __atomic_fetch_add(&outage->calls, 1, __ATOMIC_RELAXED);
  while ((error = __atomic_load_n(&outage->error, __ATOMIC_ACQUIRE)) == STORAGE_PAUSES) {
    wait_a_little();
  }
  if (error == 0 || error == STORAGE_IS_SLOW) return 0;
  errno = error;
  return 1;
}

static int path_suffers(int directory, const char* path) {
  const int before = errno;
  if (is_on() && of_path(directory, path) && suffers()) return 1;
  errno = before;
  return 0;
}

static int descriptor_suffers(int fd) {
  const int before = errno;
  if (is_on() && of_descriptor(fd) && suffers()) return 1;
  errno = before;
  return 0;
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Likewise of a write, which may only be slow.
static int write_suffers(int fd, size_t size) {
  if (descriptor_suffers(fd)) return 1;
  const int before = errno;
  if (is_on() && outage->kib_per_s > 0 && of_descriptor(fd)) {
    const int64_t until_ms = now_ms() + (int64_t)(size / 1024) * 1000 / outage->kib_per_s;
    while (__atomic_load_n(&outage->error, __ATOMIC_ACQUIRE) == STORAGE_IS_SLOW &&
           now_ms() < until_ms) {
      wait_a_little();
    }
  }
  errno = before;
  return 0;
}

// Defines NAME: it fails with `failure` where `test` holds, else it is the function of libc.
#define WRAP(type, name, parameters, arguments, test, failure) \
  type name parameters {                                       \
    static type(*real) parameters;                             \
    if (!real) *(void**)&real = dlsym(RTLD_NEXT, #name);       \
    if (test) return failure;                                  \
    return real arguments;                                     \
  }
#define OF_PATH(name, parameters, arguments) \
  WRAP(int, name, parameters, arguments, path_suffers(AT_FDCWD, path), -1)
#define OF_PATH_AT(name, parameters, arguments) \
  WRAP(int, name, parameters, arguments, path_suffers(at, path), -1)
#define OF_DESCRIPTOR(type, name, parameters, arguments) \
  WRAP(type, name, parameters, arguments, descriptor_suffers(fd), -1)
#define OF_TWO_PATHS(name)                                        \
  WRAP(int, name, (const char* path, const char* to), (path, to), \
       path_suffers(AT_FDCWD, path) || path_suffers(AT_FDCWD, to), -1)

OF_PATH(stat, (const char* path, struct stat* to), (path, to))
OF_PATH(lstat, (const char* path, struct stat* to), (path, to))
OF_PATH(access, (const char* path, int mode), (path, mode))
OF_PATH(chdir, (const char* path), (path))
OF_PATH(mkdir, (const char* path, mode_t mode), (path, mode))
OF_PATH(rmdir, (const char* path), (path))
OF_PATH(unlink, (const char* path), (path))
OF_PATH(truncate, (const char* path, off_t size), (path, size))
OF_PATH(statvfs, (const char* path, struct statvfs* to), (path, to))
OF_PATH_AT(fstatat, (int at, const char* path, struct stat* to, int flags), (at, path, to, flags))
OF_PATH_AT(statx, (int at, const char* path, int flags, unsigned mask, struct statx* to),
           (at, path, flags, mask, to))
OF_PATH_AT(faccessat, (int at, const char* path, int mode, int flags), (at, path, mode, flags))
OF_PATH_AT(mkdirat, (int at, const char* path, mode_t mode), (at, path, mode))
OF_PATH_AT(unlinkat, (int at, const char* path, int flags), (at, path, flags))
OF_TWO_PATHS(rename)
OF_TWO_PATHS(link)
OF_TWO_PATHS(symlink)
WRAP(int, linkat, (int at, const char* path, int to_at, const char* to, int flags),
     (at, path, to_at, to, flags), path_suffers(at, path) || path_suffers(to_at, to), -1)
WRAP(int, renameat, (int at, const char* path, int to_at, const char* to), (at, path, to_at, to),
     path_suffers(at, path) || path_suffers(to_at, to), -1)
WRAP(int, renameat2, (int at, const char* path, int to_at, const char* to, unsigned flags),
     (at, path, to_at, to, flags), path_suffers(at, path) || path_suffers(to_at, to), -1)
WRAP(DIR*, opendir, (const char* path), (path), path_suffers(AT_FDCWD, path), NULL)
WRAP(FILE*, fopen, (const char* path, const char* mode), (path, mode), path_suffers(AT_FDCWD, path),
     NULL)
WRAP(FILE*, fopen64, (const char* path, const char* mode), (path, mode),
     path_suffers(AT_FDCWD, path), NULL)
WRAP(struct dirent*, readdir, (DIR * directory), (directory), descriptor_suffers(dirfd(directory)),
     NULL)
WRAP(struct dirent64*, readdir64, (DIR * directory), (directory),
     descriptor_suffers(dirfd(directory)), NULL)
OF_DESCRIPTOR(int, fstat, (int fd, struct stat* to), (fd, to))
OF_DESCRIPTOR(int, fsync, (int fd), (fd))
OF_DESCRIPTOR(int, fdatasync, (int fd), (fd))
OF_DESCRIPTOR(int, ftruncate, (int fd, off_t size), (fd, size))
OF_DESCRIPTOR(int, ftruncate64, (int fd, off64_t size), (fd, size))
OF_DESCRIPTOR(int, fallocate, (int fd, int mode, off_t from, off_t size), (fd, mode, from, size))
OF_DESCRIPTOR(ssize_t, read, (int fd, void* to, size_t size), (fd, to, size))
OF_DESCRIPTOR(ssize_t, pread, (int fd, void* to, size_t size, off_t at), (fd, to, size, at))
OF_DESCRIPTOR(ssize_t, pread64, (int fd, void* to, size_t size, off64_t at), (fd, to, size, at))
WRAP(ssize_t, write, (int fd, const void* from, size_t size), (fd, from, size),
     write_suffers(fd, size), -1)
WRAP(ssize_t, pwrite, (int fd, const void* from, size_t size, off_t at), (fd, from, size, at),
     write_suffers(fd, size), -1)
WRAP(ssize_t, pwrite64, (int fd, const void* from, size_t size, off64_t at), (fd, from, size, at),
     write_suffers(fd, size), -1)
OF_DESCRIPTOR(ssize_t, writev, (int fd, const struct iovec* of, int count), (fd, of, count))
OF_DESCRIPTOR(ssize_t, pwritev, (int fd, const struct iovec* of, int count, off_t at),
              (fd, of, count, at))

// The mode of open() is there only where a file may be made.
#define OPEN_AT(name, real_name, parameters, at)              \
  int name parameters {                                       \
    static int (*real)(int, const char*, int, ...);           \
    if (!real) *(void**)&real = dlsym(RTLD_NEXT, #real_name); \
    mode_t mode = 0;                                          \
    if (flags & (O_CREAT | O_TMPFILE)) {                      \
      va_list more;                                           \
      va_start(more, flags);                                  \
      mode = va_arg(more, mode_t);                            \
      va_end(more);                                           \
    }                                                         \
    if (path_suffers(at, path)) return -1;                    \
    return real(at, path, flags, mode);                       \
  }
OPEN_AT(open, openat, (const char* path, int flags, ...), AT_FDCWD)
OPEN_AT(open64, openat64, (const char* path, int flags, ...), AT_FDCWD)
OPEN_AT(openat, openat, (int at, const char* path, int flags, ...), at)
OPEN_AT(openat64, openat64, (int at, const char* path, int flags, ...), at)
