// SPDX-License-Identifier: Apache-2.0
// Reads the pickles that PyTorch's flight recorder writes, and nothing else that a pickle can be.
//
// A pickle is a program for a stack machine. This reader knows the opcodes of plain values that
// torch::jit::Pickler emits (torch/csrc/jit/serialization/pickler.cpp, without type tags, as
// pickle_str() of torch/csrc/distributed/c10d/TraceUtils.h calls it): numbers,
// strings, lists, tuples, dictionaries, and the memo. Opcodes that name or call something (GLOBAL,
// REDUCE, …) are refused, so nothing that is read can act. Whatever is read, the result is bounded:
// size, depth and number of values, those that the memo repeats included.
#pragma once

#include <cstddef>
#include <string_view>

#include "common/base/json.h"
#include "common/base/result.h"

namespace hpctl::recorder {

struct PickleLimits {
  size_t bytes = 32U << 20;
  size_t depth = 32;          // containers within each other
  size_t values = 4'000'000;  // each use of a memoised one counts
  size_t text = 128U << 20;   // bytes of all strings, likewise
};

// Lists and tuples become arrays, dictionaries objects, None null. An error is kInvalidArgument,
// names the byte, and may also mean that the end is not written yet.
Result<nlohmann::json> read_pickle(std::string_view data, const PickleLimits& limits = {});

}  // namespace hpctl::recorder
