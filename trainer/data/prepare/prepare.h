// SPDX-License-Identifier: Apache-2.0
// `hpctl data prepare`: text to an indexed dataset.
//
// The calling thread reads the inputs and cuts them into parts (inputs.h); worker threads turn each
// into tokens and store it durably (part_store.h); when all are there, they are joined in order. A
// run that was killed goes on with the parts that are missing. The bytes of the result depend
// on inputs, tokenizer and options only, not on workers or restarts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/prepare/inputs.h"
#include "trainer/data/prepared_note.h"

namespace hpctl {

struct PrepareOptions {
  std::vector<std::string> inputs;
  std::string tokenizer;  // as load_tokenizer takes it
  std::string out;        // PREFIX
  DataFormat format = DataFormat::kText;
  ChatTemplate chat_template = ChatTemplate::kNone;  // of format chat, which needs one
  std::string json_key = "text";                     // of format text
  int workers = 1;
  bool append_eod = false;  // of format text; a completion has its end always
  // JSON lines that cannot be used: so many are left out and counted, one more is an error.
  uint64_t max_bad_lines = 0;
  uint64_t part_bytes = 32U << 20;
};

struct PrepareProgress {
  uint64_t raw_bytes = 0;  // of the inputs, done
  uint64_t raw_total = 0;
  uint64_t text_bytes = 0;
  uint64_t documents = 0;
  uint64_t tokens = 0;
  uint64_t resumed_bytes = 0;  // of raw_bytes, done by an earlier run
};

struct PrepareResult {
  PreparedNote note;
  uint64_t empty = 0;          // documents left out because they have no text, or nothing to learn
  std::string first_bad = {};  // FILE:LINE: what, of the first bad line; "" = none
  uint64_t files = 0;
};

// All that the result depends on, as text. Not the number of bad lines that are let pass: a run
// that was ended by them goes on when it is given more.
std::string preparation_plan(const PrepareOptions& options, const std::vector<InputFile>& files,
                             const std::string& tokenizer_hash);

// `on_progress` is called by the calling thread, after each part it has read and at the end.
// kAlreadyExists: there is a dataset of that name. With several mistakes in the input, the error is
// the first found one, in the order of the parts.
Result<PrepareResult> prepare_data(const PrepareOptions& options,
                                   const std::function<void(const PrepareProgress&)>& on_progress);

}  // namespace hpctl
