// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/prepared_note.h"

#include "common/base/bounded_json.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "common/job/job_spec_json.h"

namespace hpctl {

// Datasets of text without bad lines have nothing more, as all had before there were others.
void to_json(nlohmann::json& j, const PreparedNote& note) {
  j = {{"tokenizer", note.tokenizer},   {"tokenizer_hash", note.tokenizer_hash},
       {"vocabulary", note.vocabulary}, {"end_of_document", note.end_of_document},
       {"documents", note.documents},   {"tokens", note.tokens},
       {"text_bytes", note.text_bytes}};
  if (note.bad_lines > 0) j["bad_lines"] = note.bad_lines;
  if (note.format == DataFormat::kText) return;
  j["format"] = note.format;
  j["chat_template"] = note.chat_template;
  j["answer_tokens"] = note.answer_tokens;
}

void from_json(const nlohmann::json& j, PreparedNote& note) {
  j.at("tokenizer").get_to(note.tokenizer);
  j.at("tokenizer_hash").get_to(note.tokenizer_hash);
  j.at("vocabulary").get_to(note.vocabulary);
  j.at("end_of_document").get_to(note.end_of_document);
  j.at("documents").get_to(note.documents);
  j.at("tokens").get_to(note.tokens);
  j.at("text_bytes").get_to(note.text_bytes);
  if (j.contains("bad_lines")) j.at("bad_lines").get_to(note.bad_lines);
  if (!j.contains("format")) return;
  j.at("format").get_to(note.format);
  j.at("chat_template").get_to(note.chat_template);
  j.at("answer_tokens").get_to(note.answer_tokens);
}

Result<std::optional<PreparedNote>> read_prepared_note(const std::string& prefix) {
  const std::string path = prefix + ".json";
  HP_TRY_ASSIGN(const auto text, read_file_if_there(path, 1 << 20));
  if (!text) return std::optional<PreparedNote>();
  nlohmann::json document;
  try {
    document = parse_json(*text);
    return std::optional(document.get<PreparedNote>());
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, path + " is not a note of hpctl data prepare (" +
                                           problem_in(document, e) +
                                           "); prepare the dataset again, or remove the file"};
  }
}

std::string prepare_command(const std::string& input, const std::string& tokenizer,
                            DataFormat format, ChatTemplate chat_template) {
  std::string command = "hpctl data prepare " + input + " --tokenizer " + tokenizer;
  if (format == DataFormat::kText) return command + " --append-eod --out PREFIX";
  command += std::string(" --format ") + to_word(format);
  if (format == DataFormat::kChat) {
    command += std::string(" --chat-template ") + to_word(chat_template);
  }
  return command + " --out PREFIX";
}

Outcome write_prepared_note(const std::string& prefix, const PreparedNote& note) {
  return write_file_atomic(prefix + ".json", json_text(nlohmann::json(note), {.indent = 2}) + "\n");
}

}  // namespace hpctl
