// SPDX-License-Identifier: Apache-2.0
// The part of a stored file that a process could not use. A worker reports it in fields, and
// another reader reads only that part again; the words beside them are for people. A fault of a
// file outside a checkpoint (data, ledger, the directory itself) has only the errno.
#pragma once

#include <cstdint>
#include <string>

namespace hpctl {

struct FileFault {
  std::string file;     // name within the checkpoint's directory; "" = not known
  uint64_t offset = 0;  // of the first byte
  uint64_t bytes = 0;   // 0 = the file as a whole: it is missing, or has another size
  int32_t error = 0;    // errno of the call that failed; 0 = none did, or it is not known
  bool operator==(const FileFault&) const = default;
};

}  // namespace hpctl
