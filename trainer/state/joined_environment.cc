// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/joined_environment.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "common/base/checksum.h"
#include "common/base/log.h"

namespace hpctl {

namespace {

constexpr const char* kNone = "(none)";  // of a rank that lacks the label
constexpr size_t kMostRuns = 16;         // of consecutive ranks in one label
constexpr size_t kMostValues = 4;        // likewise
constexpr size_t kDigestDigits = 16;

struct RankRun {
  size_t first = 0;
  size_t last = 0;
};

// A value and who has it, ascending.
struct Holders {
  std::string value;
  std::vector<RankRun> runs;
  size_t ranks = 0;
};

struct RankLabels {
  std::string node;
  Environment environment;
};

std::string digest_of(std::string_view text) {
  Sha256 digest;
  digest.update(text);
  return digest.hex_digest().substr(0, kDigestDigits);
}

std::string value_of(const Environment& environment, const std::string& label) {
  const auto found = environment.find(label);
  return found == environment.end() ? kNone : found->second;
}

std::vector<Holders> holders_of(const std::vector<std::string>& values) {
  std::vector<Holders> all;
  std::map<std::string_view, size_t> places;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    const auto [place, is_new] = places.emplace(values[rank], all.size());
    if (is_new) all.push_back({.value = values[rank], .runs = {}});
    Holders& holders = all[place->second];
    const bool goes_on = !is_new && holders.runs.back().last + 1 == rank;
    if (goes_on) {
      holders.runs.back().last = rank;
    } else {
      holders.runs.push_back({rank, rank});
    }
    ++holders.ranks;
  }
  return all;
}

std::string ranks_text(const Holders& holders) {
  std::string text = holders.ranks == 1 ? "rank" : "ranks";
  for (const RankRun& run : holders.runs) {
    text += (&run == &holders.runs.front() ? " " : ",") + std::to_string(run.first);
    if (run.last > run.first) text += "-" + std::to_string(run.last);
  }
  return text;
}

std::string joined_value(const std::vector<std::string>& values) {
  const std::vector<Holders> all = holders_of(values);
  if (all.size() == 1) return all.front().value;
  size_t runs = 0;
  for (const Holders& holders : all) runs += holders.runs.size();
  const bool counts = runs > kMostRuns || all.size() > kMostValues;
  std::string text;
  for (size_t i = 0; i < std::min(all.size(), kMostValues); ++i) {
    text += (text.empty() ? "" : "; ") + all[i].value + " on " +
            (counts ? std::to_string(all[i].ranks) + (all[i].ranks == 1 ? " rank" : " ranks")
                    : ranks_text(all[i]));
  }
  if (!counts) return text;
  if (all.size() > kMostValues) {
    text += "; " + std::to_string(all.size() - kMostValues) + " more values";
  }
  PacketWriter placement;
  placement.texts(values);
  return text + "; placed as " + digest_of(placement.take());
}

std::string encode(const Environment& environment) {
  PacketWriter w;
  write_environment(w, environment);
  return w.take();
}

Result<RankLabels> decode(std::string_view bytes, size_t rank) {
  PacketReader r(bytes);
  RankLabels labels;
  labels.node = r.text();
  labels.environment = read_environment(r);
  if (r.finished()) return labels;
  return Error{ErrorCode::kDataLoss, "rank " + std::to_string(rank) +
                                         " has sent damaged labels of its machine; start the "
                                         "generation again"};
}

// Logs the first rank whose labels differ from rank 0's.
void log_unlike(const std::vector<RankLabels>& ranks) {
  const auto differs = [&](const RankLabels& rank) {
    return rank.environment != ranks.front().environment;
  };
  const auto other = std::find_if(ranks.begin(), ranks.end(), differs);
  if (other == ranks.end()) return;
  const auto named = [&](const RankLabels& rank) {
    return "rank " + std::to_string(&rank - ranks.data()) +
           (rank.node.empty() ? "" : " on " + rank.node);
  };
  Environment labels = ranks.front().environment;
  labels.insert(other->environment.begin(), other->environment.end());
  std::string text;
  for (const auto& [label, value] : labels) {
    const std::string here = value_of(other->environment, label);
    const std::string first = value_of(ranks.front().environment, label);
    if (here != first) text += (text.empty() ? "" : ", ") + label + " " + here + " not " + first;
  }
  log_warning(std::to_string(std::count_if(ranks.begin(), ranks.end(), differs)) + " of " +
              std::to_string(ranks.size()) + " ranks compute unlike " + named(ranks.front()) +
              "; the first is " + named(*other) + ": " + text +
              "; what goes on from here is bit-exact only with each rank on its kind of processor");
}

}  // namespace

Environment joined(const std::vector<Environment>& by_rank) {
  Environment keys;
  for (const Environment& rank : by_rank) keys.insert(rank.begin(), rank.end());
  Environment all;
  std::vector<std::string> values(by_rank.size());
  for (const auto& key : keys) {
    const auto of_rank = [&](const Environment& rank) { return value_of(rank, key.first); };
    std::transform(by_rank.begin(), by_rank.end(), values.begin(), of_rank);
    all[key.first] = joined_value(values);
  }
  return all;
}

Result<Environment> join_environments(const Environment& own, const std::string& node,
                                      Communicator& world) {
  const std::string mine = digest_of(encode(own));
  const auto size = static_cast<size_t>(world.world_size());
  std::string digests(size * kDigestDigits, '\0');
  const size_t begin = static_cast<size_t>(world.rank()) * kDigestDigits;
  std::copy(mine.begin(), mine.end(), digests.begin() + static_cast<ptrdiff_t>(begin));
  HP_TRY(world.all_gather(digests.data(), kDigestDigits));
  // Every rank sees the same digests, so all go on or none does.
  bool alike = true;
  for (size_t rank = 1; rank < size; ++rank) {
    alike = alike &&
            digests.compare(rank * kDigestDigits, kDigestDigits, digests, 0, kDigestDigits) == 0;
  }
  if (alike) return own;
  PacketWriter w;
  write_environment(w.text(node), own);
  HP_TRY_ASSIGN(const std::vector<std::string> texts, world.all_gather_text(w.take()));
  std::vector<RankLabels> ranks;
  std::vector<Environment> by_rank;
  for (const std::string& text : texts) {
    HP_TRY_ASSIGN(RankLabels labels, decode(text, ranks.size()));
    by_rank.push_back(labels.environment);
    ranks.push_back(std::move(labels));
  }
  if (world.rank() == 0) log_unlike(ranks);
  return joined(by_rank);
}

}  // namespace hpctl
