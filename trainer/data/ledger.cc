// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/ledger.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/file.h"

namespace hpctl {
namespace {

using nlohmann::json;

constexpr size_t kMaxLedgerBytes = 1ULL << 30;

bool is_ledger_name(const std::string& name) {
  return name.size() > 9 && name[0] == 'g' && name.find(".r") != std::string::npos &&
         name.substr(name.size() - 6) == ".jsonl";
}

constexpr uint64_t kNowhere = std::numeric_limits<uint64_t>::max();

struct Line {
  LedgerEntry entry;
  uint64_t back_to = kNowhere;
};

// The entries from `first` on that came after that step.
void undo(std::vector<LedgerEntry>& entries, size_t first, uint64_t back_to) {
  for (size_t i = first; i < entries.size(); ++i) {
    entries[i].undone = entries[i].undone || entries[i].step > back_to;
  }
}

bool parse_ranges(const json& list, std::vector<SampleRange>& ranges) {
  for (const json& pair : list) {
    const SampleRange range{pair.at(0).get<uint64_t>(), pair.at(1).get<uint64_t>()};
    if (pair.size() != 2 || range.begin >= range.end) return false;
    ranges.push_back(range);
  }
  return true;
}

std::optional<Line> parse_line(std::string_view text) {
  const json document = parse_json_or_discard(text);
  if (!document.is_object()) return std::nullopt;
  try {
    Line line;
    line.entry.generation = document.at("generation").get<uint64_t>();
    line.entry.step = document.at("step").get<uint64_t>();
    line.entry.rank = document.at("rank").get<int32_t>();
    if (!parse_ranges(document.at("samples"), line.entry.samples)) return std::nullopt;
    if (document.contains("counted")) line.entry.counted = document.at("counted").get<uint64_t>();
    if (document.contains("skipped")) {
      if (!parse_ranges(document.at("skipped"), line.entry.skipped)) return std::nullopt;
      line.back_to = document.at("back_to").get<uint64_t>();
    }
    return line;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::string ranges_text(const std::vector<SampleRange>& ranges) {
  std::string text = "[";
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (i > 0) text += ',';
    text += "[" + std::to_string(ranges[i].begin) + "," + std::to_string(ranges[i].end) + "]";
  }
  return text + "]";
}

// Parses the file `path`.
Outcome parse(const std::string& text, const std::string& path, std::vector<LedgerEntry>& entries) {
  size_t line_number = 0;
  const size_t first_of_file = entries.size();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // torn by a kill: the step does not count as completed
    ++line_number;
    auto line = parse_line(std::string_view(text).substr(begin, end - begin));
    if (!line) {
      return Error{ErrorCode::kDataLoss,
                   path + ":" + std::to_string(line_number) + ": not a ledger line"};
    }
    if (line->back_to != kNowhere) undo(entries, first_of_file, line->back_to);
    entries.push_back(std::move(line->entry));
    begin = end + 1;
  }
  return Ok{};
}

std::string ledger_path(const std::string& ledger_dir, uint64_t generation, int32_t rank) {
  return ledger_dir + "/g" + std::to_string(generation) + ".r" + std::to_string(rank) + ".jsonl";
}

std::string head_of_line(uint64_t generation, uint64_t step, int32_t rank) {
  return "{\"generation\":" + std::to_string(generation) + ",\"step\":" + std::to_string(step) +
         ",\"rank\":" + std::to_string(rank) + ",\"samples\":";
}

// The file is open, so an error of it is the storage's: full, too, or not allowed any more.
Error of_storage(Error error) {
  error.code = ErrorCode::kStorage;
  return error;
}

}  // namespace

LedgerWriter::LedgerWriter(UniqueFd fd, std::string path, uint64_t generation, int32_t rank)
    : fd_(std::move(fd)), path_(std::move(path)), generation_(generation), rank_(rank) {}

Result<LedgerWriter> LedgerWriter::create(const std::string& ledger_dir, uint64_t generation,
                                          int32_t rank) {
  HP_TRY(make_directories(ledger_dir));
  std::string path = ledger_path(ledger_dir, generation, rank);
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid()) return errno_error("cannot create ledger " + path);
  return LedgerWriter(std::move(fd), std::move(path), generation, rank);
}

std::string LedgerWriter::head(uint64_t step) const {
  return head_of_line(generation_, step, rank_);
}

Outcome LedgerWriter::write_line(const std::string& line) {
  if (is_torn_) HP_TRY(reopen());
  const Outcome written = write_all(fd_.get(), line, path_);
  is_torn_ = !written.ok();
  if (is_torn_) return of_storage(written.error());
  bytes_ += line.size();
  return Ok{};
}

// Removes the remains of a failed write. The descriptor may be stale for good.
Outcome LedgerWriter::reopen() {
  UniqueFd fd(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(bytes_)) != 0) {
    return of_storage(errno_error("cannot go on with ledger " + path_));
  }
  fd_ = std::move(fd);
  return Ok{};
}

Outcome LedgerWriter::append(uint64_t step, const std::vector<SampleRange>& samples,
                             uint64_t counted) {
  return write_line(head(step) + ranges_text(samples) + ",\"counted\":" + std::to_string(counted) +
                    "}\n");
}

Outcome LedgerWriter::append_skip(uint64_t step, const std::vector<SampleRange>& skipped,
                                  uint64_t back_to) {
  return write_line(head(step) + "[],\"skipped\":" + ranges_text(skipped) +
                    ",\"back_to\":" + std::to_string(back_to) + "}\n");
}

Outcome complete_ledger(const std::string& ledger_dir, uint64_t generation, int32_t rank,
                        uint64_t step, const std::vector<SampleRange>& samples) {
  const std::string path = ledger_path(ledger_dir, generation, rank);
  HP_TRY_ASSIGN(const std::string text, read_file(path, kMaxLedgerBytes));
  std::vector<LedgerEntry> entries;
  HP_TRY(parse(text, path, entries));
  // It may have gone further than those who go on.
  const bool is_there = std::any_of(entries.begin(), entries.end(), [&](const LedgerEntry& entry) {
    return entry.step == step && !entry.samples.empty() && !entry.undone;
  });
  if (is_there) return Ok{};
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC));
  if (!fd.valid()) return errno_error("cannot open ledger " + path);
  const size_t whole = text.rfind('\n') + 1;  // 0 where there is none
  if (::ftruncate(fd.get(), static_cast<off_t>(whole)) != 0) {
    return errno_error("cannot shorten ledger " + path);
  }
  return write_all(fd.get(), head_of_line(generation, step, rank) + ranges_text(samples) + "}\n",
                   path);
}

Result<std::vector<LedgerEntry>> read_ledger(const std::string& ledger_dir) {
  HP_TRY_ASSIGN(const auto names, list_directory(ledger_dir));
  std::vector<LedgerEntry> entries;
  for (const std::string& name : names) {
    if (!is_ledger_name(name)) continue;
    const std::string path = ledger_dir + "/" + name;
    HP_TRY_ASSIGN(const std::string text, read_file(path, kMaxLedgerBytes));
    HP_TRY(parse(text, path, entries));
  }
  return entries;
}

}  // namespace hpctl
