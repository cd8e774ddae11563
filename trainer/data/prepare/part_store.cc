// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/prepare/part_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/failpoint.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "trainer/data/file_writer.h"
#include "trainer/data/indexed_dataset.h"
#include "trainer/data/read_at.h"

namespace hpctl {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PartPlace, file, begin, end, first_line, lines, raw_bytes, last)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StoredPart, place, documents, sequences, empty, token_bytes,
                                   text_bytes, answer_tokens, bad_lines, first_bad)

namespace {

uint64_t size_of(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? static_cast<uint64_t>(st.st_size) : ~uint64_t{0};
}

Error with_remedy(Error error) {
  if (error.code == ErrorCode::kResourceExhausted) {
    error.message += "; free space there and run the same command again: it goes on";
  }
  return error;
}

// How many inputs two plans share before the first edited one; nullopt if more than sizes and times
// differ.
std::optional<size_t> unedited_inputs(const std::string& before, const std::string& plan) {
  auto a = parse_json_or_discard(before);
  auto b = parse_json_or_discard(plan);
  if (!a.is_object() || !a.contains("inputs")) return std::nullopt;
  const nlohmann::json old_inputs = std::exchange(a["inputs"], nullptr);
  const nlohmann::json inputs = std::exchange(b["inputs"], nullptr);
  if (a != b || !old_inputs.is_array() || old_inputs.size() != inputs.size()) return std::nullopt;
  std::optional<size_t> first;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!old_inputs[i].is_object() || !old_inputs[i].contains("path")) return std::nullopt;
    if (old_inputs[i]["path"] != inputs[i]["path"]) return std::nullopt;
    if (!first && old_inputs[i] != inputs[i]) first = i;
  }
  return first;
}

std::string_view bytes_of(const std::vector<int32_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int32_t)};
}

// Appends what the file holds.
Outcome read_numbers(const std::string& name, std::vector<int32_t>& numbers) {
  const size_t before = numbers.size();
  const UniqueFd fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return errno_error("cannot open " + name);
  numbers.resize(before + size_of(name) / sizeof(int32_t));
  const size_t bytes = (numbers.size() - before) * sizeof(int32_t);
  HP_TRY_ASSIGN(
      const size_t got,
      read_at(fd.get(), name, 0, {reinterpret_cast<uint8_t*>(numbers.data() + before), bytes}));
  if (got == bytes) return Ok{};
  return Error{ErrorCode::kDataLoss, name + " became shorter"};
}

Outcome write_whole(const std::string& path, std::string_view bytes) {
  HP_TRY_ASSIGN(FileWriter file, FileWriter::create(path));
  HP_TRY(file.append(bytes));
  return file.finish();
}

}  // namespace

Result<PartStore> PartStore::open(const std::string& directory, const std::string& plan) {
  PartStore store(directory);
  HP_TRY(make_directories(directory));
  auto lock = lock_file(directory + "/lock");
  if (!lock.ok()) {
    return Error{ErrorCode::kFailedPrecondition,
                 lock.error().message + "; is the same command running already?"};
  }
  store.lock_ = std::move(lock).value();
  const std::string plan_path = directory + "/plan.json";
  HP_TRY_ASSIGN(const bool has_plan, path_exists(plan_path));
  if (!has_plan) {
    HP_TRY(write_file_atomic(plan_path, plan));
    return store;
  }
  HP_TRY_ASSIGN(const std::string before, read_file(plan_path, 1U << 30));
  HP_TRY(store.find_parts());
  if (before == plan) return store;
  // A run that found no text has nothing that another one must not lose.
  const bool has_tokens = std::any_of(store.found_.begin(), store.found_.end(),
                                      [](const auto& part) { return part.second.token_bytes > 0; });
  const std::optional<size_t> unedited =
      has_tokens ? unedited_inputs(before, plan) : std::optional<size_t>(0);
  if (!unedited) {
    return Error{ErrorCode::kFailedPrecondition,
                 directory +
                     " holds the parts of a run with other inputs, tokenizer or options; "
                     "remove it, or choose another --out"};
  }
  // Without its record a part does not exist; so these go before the plan that they contradict.
  for (auto part = store.found_.begin(); part != store.found_.end();) {
    const bool stays = part->second.place.file < *unedited;
    if (!stays) HP_TRY(remove_tree(store.path(part->first, ".json")));
    part = stays ? std::next(part) : store.found_.erase(part);
  }
  HP_TRY(write_file_atomic(plan_path, plan));
  return store;
}

Outcome PartStore::find_parts() {
  HP_TRY_ASSIGN(const auto names, list_directory(directory_));
  for (const std::string& name : names) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc() || std::string_view(end) != ".json") continue;
    HP_TRY_ASSIGN(const std::string text, read_file(directory_ + "/" + name));
    const auto document = parse_json_or_discard(text);
    StoredPart part;
    try {
      part = document.get<StoredPart>();
    } catch (const nlohmann::json::exception&) {
      continue;  // made again
    }
    if (size_of(path(number, ".bin")) != part.token_bytes) continue;
    if (size_of(path(number, ".len")) != 4 * part.sequences) continue;
    const uint64_t divided = part.documents == part.sequences ? 0 : part.documents;
    if (divided > 0 && size_of(path(number, ".doc")) != 4 * divided) continue;
    found_[number] = part;
  }
  return Ok{};
}

StoredPart record_of(const PartPlace& place, const EncodedPart& part) {
  return {place,
          part.documents ? part.documents->size() : part.lengths.size(),
          part.lengths.size(),
          part.empty,
          part.tokens.size(),
          part.text_bytes,
          part.answer_tokens,
          part.bad_lines,
          part.first_bad};
}

Outcome PartStore::put(uint64_t number, const PartPlace& place, const EncodedPart& part) const {
  Outcome done = write_whole(path(number, ".bin"), part.tokens);
  HP_FAILPOINT("prepare.part.tokens_written");
  if (done.ok()) done = write_whole(path(number, ".len"), bytes_of(part.lengths));
  if (done.ok() && part.documents) {
    done = write_whole(path(number, ".doc"), bytes_of(*part.documents));
  }
  if (done.ok()) {
    HP_FAILPOINT("prepare.part.before_record");
    done = write_file_atomic(path(number, ".json"),
                             json_text(nlohmann::json(record_of(place, part))) + "\n");
    HP_FAILPOINT("prepare.part.recorded");
  }
  return done.ok() ? done : Outcome(with_remedy(done.error()));
}

Outcome PartStore::join_tokens(uint64_t count, const std::string& prefix) const {
  HP_TRY_ASSIGN(FileWriter file, FileWriter::create(prefix + ".bin"));
  HP_FAILPOINT("prepare.join.created");
  for (uint64_t n = 0; n < count; ++n) {
    const Outcome copied = file.append_file(path(n, ".bin"));
    if (!copied.ok()) return with_remedy(copied.error());
  }
  return file.finish();
}

Outcome PartStore::join_lengths(uint64_t count, TokenType type, const std::string& prefix) const {
  HP_FAILPOINT("prepare.join.before_index");
  std::vector<int32_t> lengths;
  std::vector<int32_t> documents;  // stays empty where there are no such files
  for (uint64_t n = 0; n < count; ++n) {
    HP_TRY(read_numbers(path(n, ".len"), lengths));
    HP_TRY_ASSIGN(const bool has_documents, path_exists(path(n, ".doc")));
    if (has_documents) HP_TRY(read_numbers(path(n, ".doc"), documents));
  }
  const Outcome written = write_index(prefix + ".idx", type, lengths, documents);
  return written.ok() ? written : Outcome(with_remedy(written.error()));
}

Outcome PartStore::remove() {
  HP_FAILPOINT("prepare.join.before_remove");
  return remove_tree(directory_);
}

}  // namespace hpctl
