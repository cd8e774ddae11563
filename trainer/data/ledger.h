// SPDX-License-Identifier: Apache-2.0
// The ledger (job.yaml debug.ledger): the samples of every rank, to prove that every sample counts
// exactly once in the surviving history.
//
//   LEDGER_DIR/g{G}.r{R}.jsonl   one line per step of rank R in generation G:
//   {"generation":G,"step":N,"rank":R,"samples":[[a,b],...],"counted":T}  (a inclusive, b
//   exclusive)
//
// "counted": targets of these samples that the loss counts. A line that another rank completed for
// one that is gone lacks it.
//
// A bad step, which was not applied because of its loss or gradient norm, leaves a line with the
// samples that were put on the skip list and the step that the rank went back to (N - 1 = only this
// step was skipped). The rank's steps after that step in this generation are undone:
//
//   {"generation":G,"step":N,"rank":R,"samples":[],"skipped":[[a,b],...],"back_to":M}
//
// A line is written with one write() before the step's optimizer update. So if another generation
// resumes from a step in memory, the step has its line although the process died right after it. If
// the process died before, no generation resumes from that step. A process killed while writing
// leaves at most a torn last line, which readers ignore.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "trainer/data/step_samples.h"

namespace hpctl {

class LedgerWriter {
 public:
  // Creates the directory and the file (which must not exist: a generation has one process per
  // rank; kAlreadyExists otherwise).
  static Result<LedgerWriter> create(const std::string& ledger_dir, uint64_t generation,
                                     int32_t rank);
  // After an error (kStorage) the same line may be appended again.
  Outcome append(uint64_t step, const std::vector<SampleRange>& samples, uint64_t counted);
  Outcome append_skip(uint64_t step, const std::vector<SampleRange>& skipped, uint64_t back_to);

 private:
  LedgerWriter(UniqueFd fd, std::string path, uint64_t generation, int32_t rank);
  std::string head(uint64_t step) const;
  Outcome write_line(const std::string& line);
  Outcome reopen();

  UniqueFd fd_;
  std::string path_;
  uint64_t bytes_ = 0;    // of whole lines
  bool is_torn_ = false;  // the last write failed: more than those may be there
  uint64_t generation_;
  int32_t rank_;
};

// Writes the line of a step into the file of a rank that has ended, where it is not there; a torn
// last line goes.
Outcome complete_ledger(const std::string& ledger_dir, uint64_t generation, int32_t rank,
                        uint64_t step, const std::vector<SampleRange>& samples);

struct LedgerEntry {
  uint64_t generation = 0;
  uint64_t step = 0;
  int32_t rank = 0;
  std::vector<SampleRange> samples;
  std::optional<uint64_t> counted;   // targets
  std::vector<SampleRange> skipped;  // not empty: the step was not applied
  bool undone = false;               // the rank went back behind this step later
};

// All complete lines of all ledger files. A torn last line is left out; any other line that cannot
// be read is an error naming file and line. In the order of each file.
Result<std::vector<LedgerEntry>> read_ledger(const std::string& ledger_dir);

}  // namespace hpctl
