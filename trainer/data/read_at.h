// SPDX-License-Identifier: Apache-2.0
// pread in full (docs/decisions/0005-read-not-map.md).
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <string>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

// Fills `out` from `offset` on; the result is how many bytes there were before the end of the file.
// A handle that is stale stays so; the file's name may lead to it all the same.
inline Result<size_t> read_at(int fd, const std::string& path, uint64_t offset,
                              std::span<uint8_t> out) {
  size_t done = 0;
  UniqueFd again;
  while (done < out.size()) {
    const ssize_t n =
        ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == ESTALE && !again.valid()) {
      again.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (!again.valid()) {
        Error error = errno_error("cannot open data " + path);
        error.code = ErrorCode::kStorage;
        return error;
      }
      fd = again.get();
      continue;
    }
    if (n < 0) return errno_error("cannot read data " + path);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

}  // namespace hpctl
