// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: a machine whose network, or memory, changes a byte now and then, behind the
// checksums of TCP. Of the large pieces of what a process receives on sockets every eighth has its
// last byte flipped; short messages come as they are.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { kLarge = 4096, kEvery = 8 };

static atomic_int large_pieces;

static void flip_last(const struct iovec* parts, size_t count, ssize_t bytes) {
  if (bytes < kLarge || atomic_fetch_add(&large_pieces, 1) % kEvery != 0) return;
  size_t left = (size_t)bytes;
  for (size_t i = 0; i < count; ++i) {
    if (left <= parts[i].iov_len) {
      ((unsigned char*)parts[i].iov_base)[left - 1] ^= 0x40;
      return;
    }
    left -= parts[i].iov_len;
  }
}

ssize_t recv(int fd, void* to, size_t size, int flags) {
  static ssize_t (*real)(int, void*, size_t, int);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "recv");
  const ssize_t n = real(fd, to, size, flags);
  const struct iovec part = {to, size};
  flip_last(&part, 1, n);
  return n;
}

ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  static ssize_t (*real)(int, struct msghdr*, int);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "recvmsg");
  const ssize_t n = real(fd, message, flags);
  flip_last(message->msg_iov, message->msg_iovlen, n);
  return n;
}

ssize_t readv(int fd, const struct iovec* parts, int count) {
  static ssize_t (*real)(int, const struct iovec*, int);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "readv");
  const ssize_t n = real(fd, parts, count);
  flip_last(parts, (size_t)count, n);
  return n;
}
