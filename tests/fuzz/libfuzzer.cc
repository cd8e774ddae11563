// SPDX-License-Identifier: Apache-2.0
// hpctl_fuzz: the harnesses under libFuzzer, one for each run of the program, so that all of them
// cost one link.
//
//   hpctl_fuzz --list              names of harnesses
//   hpctl_fuzz --seeds NAME DIR    writes the seeds and regressions of a harness, a file for each
//   HPCTL_FUZZ_HARNESS=NAME hpctl_fuzz [libFuzzer's arguments]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/base/file.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/mutations.h"

namespace hpctl::fuzz {
namespace {

const Harness* chosen = nullptr;

[[noreturn]] void complain(const std::string& what) {
  std::fprintf(stderr, "hpctl_fuzz: %s; hpctl_fuzz --list has the names\n", what.c_str());
  std::exit(2);
}

const Harness& harness_named(const std::string& name) {
  const Harness* found = find_harness(name);
  if (found == nullptr) complain("there is no harness \"" + name + "\"");
  return *found;
}

void write_seeds(const Harness& harness, const std::string& directory) {
  std::vector<std::string> inputs = sound_inputs(harness);
  for (const Regression& regression : regressions(harness)) inputs.push_back(regression.input);
  for (const std::string& input : awkward_inputs()) {
    if (input.size() <= 4096) inputs.push_back(input);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto written = write_file_atomic(directory + "/seed-" + std::to_string(i), inputs[i]);
    if (!written.ok()) complain(written.error().message);
  }
}

// 0 = libFuzzer goes on.
bool answers(const std::vector<std::string>& arguments) {
  if (arguments.size() == 1 && arguments[0] == "--list") {
    for (const Harness& harness : all_harnesses()) std::printf("%s\n", harness.name);
    return true;
  }
  if (arguments.size() == 3 && arguments[0] == "--seeds") {
    write_seeds(harness_named(arguments[1]), arguments[2]);
    return true;
  }
  return false;
}

}  // namespace
}  // namespace hpctl::fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  using namespace hpctl::fuzz;
  if (answers({*argv + 1, *argv + *argc})) std::exit(0);
  const char* name = std::getenv("HPCTL_FUZZ_HARNESS");
  chosen = &harness_named(name == nullptr ? "" : name);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hpctl::fuzz::run(*hpctl::fuzz::chosen, {reinterpret_cast<const char*>(data), size});
  return 0;
}
