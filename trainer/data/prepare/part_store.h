// SPDX-License-Identifier: Apache-2.0
// Finished parts of a run of `hpctl data prepare`, in the directory OUT.parts until all are there:
//
//   plan.json        what is being prepared: inputs with size and time, tokenizer, options. A run
//                    goes on only where it is the same, or where inputs were edited, say because a
//                    bad line was: then with the parts of those before the first edited one.
//   lock             held by the run (flock)
//   N.bin, N.len     tokens, and i32 lengths of the sequences, of part N
//   N.doc            i32 numbers of sequences of the documents, where these are not one each
//   N.json           where part N lies and what it gave; written last: without it there is no part
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "trainer/data/prepare/inputs.h"
#include "trainer/data/prepare/part_encoder.h"

namespace hpctl {

struct StoredPart {
  PartPlace place;
  uint64_t documents = 0;
  uint64_t sequences = 0;
  uint64_t empty = 0;
  uint64_t token_bytes = 0;
  uint64_t text_bytes = 0;
  uint64_t answer_tokens = 0;
  uint64_t bad_lines = 0;
  std::string first_bad;
};

// The record of a part that lies at `place`.
StoredPart record_of(const PartPlace& place, const EncodedPart& part);

class PartStore {
 public:
  // Makes the directory, or takes up the one that is there. kFailedPrecondition: it is of another
  // plan, or a run holds it.
  static Result<PartStore> open(const std::string& directory, const std::string& plan);

  // Parts of an earlier run, by number; complete ones only.
  const std::map<uint64_t, StoredPart>& found() const { return found_; }
  // Durable when it returns. Any thread; each number once.
  Outcome put(uint64_t number, const PartPlace& place, const EncodedPart& part) const;
  // The stored parts 0 ... count-1 as PREFIX.bin and PREFIX.idx, the latter last. Calls
  // `before_index` between the two.
  template <typename BeforeIndex>
  Outcome join(uint64_t count, TokenType type, const std::string& prefix,
               BeforeIndex&& before_index) const {
    HP_TRY(join_tokens(count, prefix));
    HP_TRY(before_index());
    return join_lengths(count, type, prefix);
  }
  Outcome remove();

 private:
  explicit PartStore(std::string directory) : directory_(std::move(directory)) {}
  Outcome find_parts();
  Outcome join_tokens(uint64_t count, const std::string& prefix) const;
  Outcome join_lengths(uint64_t count, TokenType type, const std::string& prefix) const;
  std::string path(uint64_t number, const char* suffix) const {
    return directory_ + "/" + std::to_string(number) + suffix;
  }

  std::string directory_;
  UniqueFd lock_;
  std::map<uint64_t, StoredPart> found_;
};

}  // namespace hpctl
