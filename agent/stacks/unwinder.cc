// SPDX-License-Identifier: Apache-2.0
#include "agent/stacks/unwinder.h"

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>

namespace hpctl::stacks {
namespace {

constexpr size_t kMostNameBytes = 300;

int no_debug_files(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                   GElf_Word, char**) {
  return -1;
}

constexpr Dwfl_Callbacks kCallbacks = {dwfl_linux_proc_find_elf, no_debug_files, nullptr, nullptr};

int add_address(Dwfl_Frame* frame, void* argument) {
  auto& addresses = *static_cast<std::vector<Dwarf_Addr>*>(argument);
  Dwarf_Addr pc = 0;
  bool is_activation = false;
  if (!dwfl_frame_pc(frame, &pc, &is_activation)) return DWARF_CB_ABORT;
  // A caller's place is the call before its return address.
  addresses.push_back(is_activation ? pc : pc - 1);
  return addresses.size() < kMostFrames ? DWARF_CB_OK : DWARF_CB_ABORT;
}

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 ? text.get() : symbol;
  if (name.size() > kMostNameBytes) name.replace(kMostNameBytes, std::string::npos, "...");
  return name;
}

std::string hexadecimal(uint64_t number) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

}  // namespace

Unwinder::Unwinder(pid_t pid) : dwfl_(dwfl_begin(&kCallbacks)) {
  const bool ready = dwfl_ && dwfl_linux_proc_report(dwfl_.get(), pid) == 0 &&
                     dwfl_report_end(dwfl_.get(), nullptr, nullptr) == 0 &&
                     dwfl_linux_proc_attach(dwfl_.get(), pid, true) == 0;
  if (ready) return;
  const char* reason = dwfl_errmsg(-1);
  trouble_ = "process " + std::to_string(pid) + " cannot be unwound" +
             (reason == nullptr ? "" : std::string(": ") + reason);
}

std::vector<Frame> Unwinder::frames(pid_t tid) {
  std::vector<Frame> frames;
  if (!trouble_.empty()) return frames;
  std::vector<Dwarf_Addr> addresses;
  dwfl_getthread_frames(dwfl_.get(), tid, add_address, &addresses);
  frames.reserve(addresses.size());
  for (const Dwarf_Addr address : addresses) {
    const auto [known, is_new] = names_.try_emplace(address);
    if (is_new) known->second = name(address);
    frames.push_back(known->second);
  }
  return frames;
}

Frame Unwinder::name(Dwarf_Addr address) {
  Dwfl_Module* module = dwfl_addrmodule(dwfl_.get(), address);
  if (module == nullptr) return {hexadecimal(address), "?", false};
  Dwarf_Addr start = 0;
  const std::string path =
      dwfl_module_info(module, nullptr, &start, nullptr, nullptr, nullptr, nullptr, nullptr);
  const std::string file = path.substr(path.rfind('/') + 1);
  GElf_Off offset = 0;
  GElf_Sym symbol;
  const char* found =
      dwfl_module_addrinfo(module, address, &offset, &symbol, nullptr, nullptr, nullptr);
  if (found == nullptr) return {hexadecimal(address - start), file, false};
  return {demangled(found), file, true};
}

}  // namespace hpctl::stacks
