// SPDX-License-Identifier: Apache-2.0
// Fuzzing of whatever reads what somebody else wrote: one harness for each parser, in one form for
// two uses (decision 1901).
//
//   fuzz_*_replay  tests in every preset: the seeds, inputs that have broken parsers elsewhere, the
//                  inputs that once broke ours (regressions/), and a fixed number of mutations
//   fuzz_*         the preset `fuzz`: libFuzzer under clang, one harness for each run
//
// A harness takes any bytes and returns, or the program ends: by a sanitizer, an exception, or
// because a property does not hold (properties.h).
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace hpctl::fuzz {

struct Harness {
  const char* name;
  void (*run)(std::string_view input);
  // Sound inputs, made by our own writers where there are any, so that a change of a format takes
  // its seeds with it. Those of files in the repository are there besides (corpus.h).
  std::vector<std::string> (*seeds)();
  // Files of the repository that are sound inputs; a directory stands for the files in it.
  std::vector<const char*> files = {};
  // What a run may have allocated at one time: so much, and so many bytes for each of the input.
  size_t memory = size_t{4} << 20;
  size_t memory_per_byte = 1024;
};

// By subject, in files of their own.
std::vector<Harness> agent_harnesses();
std::vector<Harness> checkpoint_harnesses();
std::vector<Harness> controller_harnesses();
std::vector<Harness> data_harnesses();
std::vector<Harness> frame_harnesses();
std::vector<Harness> record_harnesses();
std::vector<Harness> request_harnesses();
std::vector<Harness> text_harnesses();
std::vector<Harness> tool_harnesses();
std::vector<Harness> yaml_harnesses();

// Those of this program, which defines it (control.cc, node.cc, training.cc).
const std::vector<Harness>& all_harnesses();
std::vector<Harness> joined(std::initializer_list<std::vector<Harness>> groups);
// nullptr = there is none of that name.
const Harness* find_harness(std::string_view name);

// Runs it, and checks what it allocates and how long it takes.
void run(const Harness& harness, std::string_view input);

}  // namespace hpctl::fuzz
