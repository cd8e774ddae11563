// SPDX-License-Identifier: Apache-2.0
#include "hpctl/prepare_at_submit.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "common/base/bounded_json.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "hpctl/captured_program.h"
#include "hpctl/exit_codes.h"
#include "hpctl/prepared_data.h"
#include "hpctl/program_path.h"
#include "trainer/data/prepared_note.h"
#include "trainer/data/sample_reader.h"
#include "trainer/data/token_source.h"
#include "trainer/data/tokenizer_files.h"

namespace hpctl {
namespace {

Outcome check_tokenizer(const std::string& prefix, const std::string& tokenizer) {
  HP_TRY_ASSIGN(const auto note, read_prepared_note(prefix));
  if (!note) return Ok{};  // Megatron-LM leaves none
  std::string hash;
  if (tokenizer != "byte") {
    HP_TRY_ASSIGN(const TokenizerFiles files, read_tokenizer_files(tokenizer));
    hash = files.hash;
  }
  if (note->tokenizer_hash == hash) return Ok{};
  return Error{ErrorCode::kInvalidArgument,
               "data " + prefix + " was prepared with another tokenizer (" + note->tokenizer +
                   ") than workload.train.data.tokenizer, " + tokenizer +
                   "; name that one, or prepare the data again"};
}

Result<std::string> prepare_one(const std::string& path, const TrainSpec& train,
                                const PreparedData& prepared, const Terminal& terminal) {
  HP_TRY_ASSIGN(const std::string program, sibling_program("hpdata"));
  HP_TRY_ASSIGN(const Captured said,
                run_captured({program, "cache", "--tokenizer=" + train.data.tokenizer,
                              std::string("--format=") + to_word(train.data.format),
                              std::string("--chat-template=") + to_word(train.data.chat_template),
                              "--directory=" + prepared.directory(),
                              "--max-bytes=" + std::to_string(kMaxPreparedAtSubmit),
                              "--vocabulary=" + std::to_string(train.model.vocab),
                              "--workers=" +
                                  std::to_string(std::max(1U, std::thread::hardware_concurrency())),
                              "--", path}));
  const auto answer = parse_json_or_discard(said.out);
  if (answer.is_object() && answer.contains("error")) {
    const bool mistake = said.exit_code == kExitUsage;
    return Error{mistake ? ErrorCode::kInvalidArgument : ErrorCode::kFailedPrecondition,
                 answer["error"].get<std::string>()};
  }
  if (!answer.is_object() || !answer.contains("prefix")) {
    return Error{ErrorCode::kInternal, "hpdata ended without an answer while it prepared " + path};
  }
  const auto prefix = answer["prefix"].get<std::string>();
  if (answer.value("new", false)) {
    terminal.err << "hpctl: data " << printable(path) << " prepared as " << printable(prefix)
                 << std::endl;
  }
  return prefix;
}

// What becomes of pairs and conversations, told while they can still be changed. What cannot be
// opened here others say.
void tell_packing(const TrainSpec& train, const Terminal& terminal) {
  const auto reader = SampleReader::open(train.data, train.seed, train.model.vocab);
  if (reader.ok()) terminal.err << "hpctl: data: " << reader->packing() << std::endl;
}

}  // namespace

Outcome prepare_text(JobSpec& spec, const HomePaths& paths, const Terminal& terminal) {
  if (!spec.train) return Ok{};
  DataSpec& data = spec.train->data;
  if (data.tokenizer == "byte" && !data.has_answers()) return Ok{};
  std::vector<std::string*> places;
  if (data.blend.empty()) places.push_back(&data.path);
  for (BlendPart& part : data.blend) places.push_back(&part.path);
  const PreparedData prepared(paths);
  {
    const UniqueFd held = prepared.hold();
    for (std::string* path : places) {
      HP_TRY_ASSIGN(const bool is_text, path_exists(*path));
      HP_TRY_ASSIGN(const bool is_done, is_prepared(*path));
      if (is_done) {
        HP_TRY(check_tokenizer(*path, data.tokenizer));
      } else if (is_text) {
        HP_TRY_ASSIGN(*path, prepare_one(*path, *spec.train, prepared, terminal));
      }
      prepared.mark_used(*path);
    }
  }
  for (const std::string& prefix : prepared.remove_unused(::time(nullptr))) {
    terminal.err << "hpctl: data " << printable(prefix) << " removed: no job has used it for "
                 << kUnusedDataSeconds / (24 * 60 * 60) << " days" << std::endl;
  }
  if (data.has_answers()) tell_packing(*spec.train, terminal);
  return Ok{};
}

}  // namespace hpctl
