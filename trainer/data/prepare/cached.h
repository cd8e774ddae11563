// SPDX-License-Identifier: Apache-2.0
// Small text, prepared once for all jobs that ask for the same: in a directory, under a name that
// depends on the inputs (paths, sizes, times), the tokenizer's content and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/base/result.h"
#include "trainer/data/prepare/prepare.h"

namespace hpctl {

struct CacheRequest {
  std::string input;            // a file or a directory, as find_inputs takes it
  std::string tokenizer;        // as load_tokenizer takes it
  std::string directory;        // made when missing
  uint64_t max_bytes = 0;       // of the input's files together
  uint64_t max_vocabulary = 0;  // of the model
  int workers = 1;
  DataFormat format = DataFormat::kText;
  ChatTemplate chat_template = ChatTemplate::kNone;
};

struct CachedData {
  std::string prefix;
  bool is_new = false;
};

// Documents end with the tokenizer's end token where it has one. Errors as prepare_data; more text
// than max_bytes, and then what to do instead; a tokenizer of more ids than max_vocabulary.
Result<CachedData> prepare_cached(const CacheRequest& request,
                                  const std::function<void(const PrepareProgress&)>& on_progress);

}  // namespace hpctl
