// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/prepared_note.h"

#include <nlohmann/json.hpp>

#include "common/base/bounded_json.h"
#include "common/base/file.h"

namespace hpctl {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PreparedNote, tokenizer, tokenizer_hash, vocabulary,
                                   end_of_document, documents, tokens, text_bytes)

Result<std::optional<PreparedNote>> read_prepared_note(const std::string& prefix) {
  const std::string path = prefix + ".json";
  if (!path_exists(path)) return std::optional<PreparedNote>();
  HP_TRY_ASSIGN(const std::string text, read_file(path, 1 << 20));
  try {
    return std::optional(parse_json(text).get<PreparedNote>());
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, path + " is not a note of hpctl data prepare (" + e.what() +
                                           "); prepare the dataset again, or remove the file"};
  }
}

Outcome write_prepared_note(const std::string& prefix, const PreparedNote& note) {
  return write_file_atomic(prefix + ".json", nlohmann::json(note).dump(2) + "\n");
}

}  // namespace hpctl
