// SPDX-License-Identifier: Apache-2.0
// PREFIX.json, which `hpctl data prepare` leaves beside PREFIX.bin and PREFIX.idx: how the tokens
// were made. Megatron-LM ignores it; datasets that it wrote have none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/job/train_spec.h"

namespace hpctl {

struct PreparedNote {
  std::string tokenizer;         // "byte", or the file's name without its directory
  std::string tokenizer_hash;    // SHA-256 of the file; "" for byte
  uint64_t vocabulary = 0;       // ids are below it
  int64_t end_of_document = -1;  // appended to every document; -1 = nothing was
  uint64_t documents = 0;
  uint64_t tokens = 0;
  uint64_t text_bytes = 0;
  DataFormat format = DataFormat::kText;
  ChatTemplate chat_template = ChatTemplate::kNone;
  uint64_t answer_tokens = 0;  // that are learnt, where format is not text
  uint64_t bad_lines = 0;      // of JSON lines, left out
};

// nullopt: there is none. kDataLoss: it cannot be read.
Result<std::optional<PreparedNote>> read_prepared_note(const std::string& prefix);
// The command that makes such a dataset, for errors.
std::string prepare_command(const std::string& input, const std::string& tokenizer,
                            DataFormat format, ChatTemplate chat_template);

Outcome write_prepared_note(const std::string& prefix, const PreparedNote& note);

}  // namespace hpctl
