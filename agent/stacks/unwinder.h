// SPDX-License-Identifier: Apache-2.0
// Unwinder: the frames of a halted thread, by elfutils' libdw: from the unwind tables that every
// program has, and the symbols in its files. Files of debug information are not looked for: that
// could take long, and may even ask a server.
#pragma once

#include <elfutils/libdwfl.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace hpctl::stacks {

inline constexpr size_t kMostFrames = 64;

struct Frame {
  std::string function;  // demangled; where there is no symbol, the address within the module
  std::string module;    // the file's name
  bool named = false;
};

class Unwinder {
 public:
  explicit Unwinder(pid_t pid);
  // Innermost first; empty where it cannot be unwound.
  std::vector<Frame> frames(pid_t tid);
  const std::string& trouble() const { return trouble_; }

 private:
  struct End {
    void operator()(Dwfl* dwfl) const { dwfl_end(dwfl); }
  };
  Frame name(Dwarf_Addr address);

  std::unique_ptr<Dwfl, End> dwfl_;
  std::string trouble_;
  std::map<Dwarf_Addr, Frame> names_;
};

}  // namespace hpctl::stacks
