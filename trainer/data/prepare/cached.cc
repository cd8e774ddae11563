// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/prepare/cached.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "common/base/checksum.h"
#include "common/base/file.h"
#include "trainer/data/prepare/inputs.h"
#include "trainer/data/prepared_note.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {
namespace {

std::string mebibytes(uint64_t bytes) {
  return std::to_string((bytes + (1U << 19)) >> 20) + " MiB";
}

Error too_large(const CacheRequest& request, uint64_t bytes) {
  return Error{
      ErrorCode::kFailedPrecondition,
      "data " + request.input + " has " + mebibytes(bytes) + " of text, more than the " +
          mebibytes(request.max_bytes) + " that are prepared while a job is submitted; run `" +
          prepare_command(request.input, request.tokenizer, request.format, request.chat_template) +
          "` and set data.path to PREFIX"};
}

}  // namespace

Result<CachedData> prepare_cached(const CacheRequest& request,
                                  const std::function<void(const PrepareProgress&)>& on_progress) {
  PrepareOptions options;
  options.inputs = {request.input};
  options.tokenizer = request.tokenizer;
  options.format = request.format;
  options.chat_template = request.chat_template;
  options.workers = request.workers;
  std::string hash;
  HP_TRY_ASSIGN(const auto tokenizer, load_tokenizer(request.tokenizer, &hash));
  if (tokenizer->vocabulary() > request.max_vocabulary) {
    return Error{ErrorCode::kInvalidArgument,
                 "tokenizer " + request.tokenizer + " has " +
                     std::to_string(tokenizer->vocabulary()) + " ids, but the model has " +
                     std::to_string(request.max_vocabulary) +
                     "; set workload.train.model.vocab to at least that"};
  }
  options.append_eod = request.format == DataFormat::kText && tokenizer->end_of_document() >= 0;
  HP_TRY_ASSIGN(const std::vector<InputFile> files, find_inputs(options.inputs));
  uint64_t bytes = 0;
  for (const InputFile& file : files) bytes += file.bytes;
  if (bytes > request.max_bytes) return too_large(request, bytes);
  Sha256 key;
  key.update(preparation_plan(options, files, hash));
  const std::filesystem::path input = std::filesystem::path(request.input).lexically_normal();
  const std::string name = (input.has_filename() ? input : input.parent_path()).filename();
  options.out = request.directory + "/" + name + "-" + key.hex_digest().substr(0, 16);
  // The parts go after the index has come.
  HP_TRY_ASSIGN(const bool has_index, path_exists(options.out + ".idx"));
  HP_TRY_ASSIGN(const bool has_parts, path_exists(options.out + ".parts"));
  if (has_index && !has_parts) return CachedData{options.out, false};
  HP_TRY(make_directories(request.directory));
  HP_TRY(prepare_data(options, on_progress));
  return CachedData{options.out, true};
}

}  // namespace hpctl
