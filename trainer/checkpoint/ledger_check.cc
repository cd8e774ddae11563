// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/ledger_check.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "common/job/lineage.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/data/ledger.h"

namespace hpctl {
namespace {

constexpr size_t kMaxProblems = 10;

struct Span {
  SampleRange samples;
  const LedgerEntry* entry = nullptr;  // nullptr: the skip list
};

std::string where(const Span& span) {
  if (span.entry == nullptr) return "the skip list";
  return "step " + std::to_string(span.entry->step) + " of generation " +
         std::to_string(span.entry->generation) + " (rank " + std::to_string(span.entry->rank) +
         ")";
}

std::string range_text(uint64_t begin, uint64_t end) {
  return end - begin == 1 ? "sample " + std::to_string(begin)
                          : "samples [" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

// Generation -> (first, last] steps that survive. Without records every step of every generation
// up to `last_step` does.
using Survivors = std::map<uint64_t, std::pair<uint64_t, uint64_t>>;

Survivors surviving_steps(const std::vector<GenerationRecord>& chain, uint64_t last_step) {
  Survivors survivors;
  uint64_t upper = last_step;
  for (const GenerationRecord& record : chain) {
    if (record.start_step < upper) survivors[record.generation] = {record.start_step, upper};
    upper = std::min(upper, record.start_step);
  }
  return survivors;
}

class Checker {
 public:
  Checker(const Manifest& manifest, LedgerReport& report) : manifest_(manifest), report_(report) {}

  void collect(const std::vector<LedgerEntry>& entries, const Survivors& survivors, bool all) {
    std::set<uint64_t> generations;
    std::set<std::tuple<uint64_t, int32_t>> seen;
    for (const LedgerEntry& entry : entries) {
      const auto found = survivors.find(entry.generation);
      const bool survives = all ? entry.step <= manifest_.step
                                : found != survivors.end() && entry.step > found->second.first &&
                                      entry.step <= found->second.second;
      if (!survives || entry.undone) {
        ++report_.undone;
        continue;
      }
      if (!entry.skipped.empty()) {
        check_skip(entry);
        continue;
      }
      ++report_.entries;
      generations.insert(entry.generation);
      if (!seen.insert({entry.step, entry.rank}).second) {
        problem("rank " + std::to_string(entry.rank) + " completed step " +
                std::to_string(entry.step) + " twice in the surviving history");
      }
      for (const SampleRange& samples : entry.samples) spans_.push_back({samples, &entry});
    }
    for (const SampleRange& skipped : manifest_.skipped) spans_.push_back({skipped, nullptr});
    report_.generations = generations.size();
  }

  void sweep() {
    std::sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) {
      return std::tie(a.samples.begin, a.samples.end) < std::tie(b.samples.begin, b.samples.end);
    });
    uint64_t covered = 0;
    const Span* last = nullptr;  // reaches furthest
    for (const Span& span : spans_) {
      const auto [begin, end] = span.samples;
      if (begin > covered) gap(covered, begin, last);
      if (begin < covered && last != nullptr) {
        problem(range_text(begin, std::min(end, covered)) + " counted twice: in " + where(*last) +
                " and in " + where(span));
      }
      if (end > manifest_.sample_cursor && span.entry != nullptr) {
        problem(range_text(begin, end) + " of " + where(span) + " lie beyond the cursor");
      }
      if (end > covered) {
        covered = end;
        last = &span;
      }
    }
    if (covered < manifest_.sample_cursor) gap(covered, manifest_.sample_cursor, last);
  }

 private:
  void check_skip(const LedgerEntry& entry) {
    for (const SampleRange& samples : entry.skipped) {
      const bool listed = std::any_of(
          manifest_.skipped.begin(), manifest_.skipped.end(), [&](const SampleRange& skipped) {
            return skipped.begin <= samples.begin && samples.end <= skipped.end;
          });
      if (listed) continue;
      problem(range_text(samples.begin, samples.end) + " were skipped in " + where({{}, &entry}) +
              " but are not on the skip list");
    }
  }
  void gap(uint64_t begin, uint64_t end, const Span* before) {
    end = std::min(end, manifest_.sample_cursor);
    if (begin >= end) return;
    problem(range_text(begin, end) + " never counted" +
            (before == nullptr ? "" : ", after " + where(*before)));
  }
  void problem(std::string text) {
    if (report_.problems.size() < kMaxProblems) report_.problems.push_back(std::move(text));
  }

  const Manifest& manifest_;
  LedgerReport& report_;
  std::vector<Span> spans_;
};

}  // namespace

Result<LedgerReport> verify_ledger(const std::string& ledger_dir,
                                   const std::string& checkpoint_dir) {
  HP_TRY_ASSIGN(const auto records, read_lineage(checkpoint_dir));
  return verify_ledger(ledger_dir, checkpoint_dir, chain_of_newest(records));
}

Result<LedgerReport> verify_ledger(const std::string& ledger_dir, const std::string& checkpoint_dir,
                                   const std::vector<GenerationRecord>& chain) {
  HP_TRY_ASSIGN(const auto latest, latest_on_chain(checkpoint_dir, chain, {}));
  if (!latest) {
    return Error{ErrorCode::kNotFound,
                 "no valid checkpoint in " + checkpoint_dir + " to compare the ledger with"};
  }
  HP_TRY_ASSIGN(const Manifest manifest, read_manifest(checkpoint_dir + "/" + latest->name()));
  HP_TRY_ASSIGN(const auto entries, read_ledger(ledger_dir));
  if (entries.empty()) {
    return Error{ErrorCode::kNotFound,
                 "no ledger in " + ledger_dir + "; set debug.ledger: true in job.yaml"};
  }
  LedgerReport report;
  report.step = manifest.step;
  report.cursor = manifest.sample_cursor;
  Checker checker(manifest, report);
  checker.collect(entries, surviving_steps(chain, manifest.step), chain.empty());
  checker.sweep();
  return report;
}

}  // namespace hpctl
