// SPDX-License-Identifier: Apache-2.0
#include "controller/core/hang.h"

#include <algorithm>
#include <cstddef>

#include "controller/core/plan.h"

namespace hpctl::core {

namespace {

using Suspects = std::vector<const RankSight*>;

template <typename Predicate>
Suspects select(const std::vector<RankSight>& ranks, Predicate predicate) {
  Suspects found;
  for (const RankSight& rank : ranks) {
    if (predicate(rank)) found.push_back(&rank);
  }
  return found;
}

// `wanted` is in ascending order.
Suspects among(const std::vector<RankSight>& ranks, const std::vector<Rank>& wanted) {
  return select(ranks, [&](const RankSight& rank) {
    return std::binary_search(wanted.begin(), wanted.end(), rank.rank);
  });
}

bool is_stopped(const RankSight& rank) {
  return rank.process_state == "T" || rank.process_state == "t";
}

// "rank 2 (pid 102)", "ranks 1, 3"
std::string names_of(const Suspects& suspects) {
  if (suspects.size() == 1) {
    return "rank " + to_string(suspects[0]->rank) + " (pid " + std::to_string(suspects[0]->pid) +
           ")";
  }
  std::vector<std::string> names;
  for (const RankSight* rank : suspects) names.push_back(to_string(rank->rank));
  return "ranks " + join_some(names);
}

bool are_on_one_node(const Suspects& suspects) {
  return std::all_of(suspects.begin(), suspects.end(),
                     [&](const RankSight* rank) { return rank->node == suspects[0]->node; });
}

// By what the ranks are compared.
struct Pace {
  uint64_t RankSight::*counter;
  const char* done;
  const char* others;

  uint64_t of(const RankSight& rank) const { return rank.*counter; }
  std::string reached(const RankSight& rank) const { return done + std::to_string(of(rank)); }
};

constexpr Pace kCollectives{&RankSight::collective, "began collective ", "others are waiting in "};
// A program's own report: not every rank need report it.
constexpr Pace kSteps{&RankSight::step, "completed step ", "others completed "};

// Precondition: there are ranks.
class Blame {
 public:
  Blame(const std::vector<RankSight>& ranks, const std::vector<GroupSight>& groups)
      : ranks_(ranks),
        groups_(groups),
        tells_collectives_(std::any_of(ranks.begin(), ranks.end(), has_begun)) {
    known_ = select(ranks, [&](const RankSight& rank) { return is_known(rank); });
  }

  HangVerdict verdict() const {
    if (const auto stopped = select(ranks_, is_stopped); !stopped.empty()) {
      const std::string also = is_known(*stopped[0]) ? " and " + pace().reached(*stopped[0]) : "";
      return accuse(stopped, verb(stopped, "is", "are") + " stopped (state T)" + also);
    }
    if (!groups_.empty()) return verdict_of_groups();
    if (known_.empty()) return nobody();
    const auto [fewest, most] = std::minmax_element(
        known_.begin(), known_.end(),
        [&](const RankSight* a, const RankSight* b) { return pace().of(*a) < pace().of(*b); });
    if (const uint64_t least = pace().of(**fewest); least < pace().of(**most)) {
      const auto behind = select(ranks_, [&](const RankSight& rank) {
        return is_known(rank) && pace().of(rank) == least;
      });
      return accuse(behind, pace().reached(**fewest) + ", " + pace().others +
                                std::to_string(pace().of(**most)));
    }
    if (const auto in_kernel = select(ranks_, is_in_kernel);
        !in_kernel.empty() && in_kernel.size() < ranks_.size()) {
      return accuse(in_kernel, held_in_kernel(in_kernel) + "; " + alike());
    }
    return nobody();
  }

 private:
  HangVerdict verdict_of_groups() const {
    const WaitsFor found = find_culprits(groups_);
    HangVerdict verdict;
    if (!found.cycle.empty()) {
      verdict.evidence =
          "ranks wait for each other in a cycle, which is a defect of the trainer: " +
          list(found.cycle) + "; no rank is blamed";
      return verdict;
    }
    if (const auto culprits = among(ranks_, found.culprits); !culprits.empty()) {
      return accuse(culprits, verb(culprits, "waits", "wait") +
                                  " for nobody, and others wait: " + list(found.waits));
    }
    if (const auto in_kernel = select(ranks_, is_in_kernel);
        !in_kernel.empty() && in_kernel.size() < ranks_.size()) {
      return accuse(in_kernel, held_in_kernel(in_kernel));
    }
    verdict.evidence = "nobody is known for whom the others wait; no rank is blamed";
    return verdict;
  }

  static std::string held_in_kernel(const Suspects& suspects) {
    return verb(suspects, "waits", "wait") + " uninterruptibly in the kernel (state D)";
  }

  static std::string list(const std::vector<Wait>& waits) {
    std::vector<std::string> texts;
    for (const Wait& wait : waits) texts.push_back(describe(wait));
    return join_some(texts);
  }

  static bool has_begun(const RankSight& rank) { return rank.collective > 0; }
  static bool is_in_kernel(const RankSight& rank) { return rank.process_state == "D"; }
  static std::string verb(const Suspects& suspects, const char* one, const char* several) {
    return suspects.size() == 1 ? one : several;
  }

  const Pace& pace() const { return tells_collectives_ ? kCollectives : kSteps; }
  // A rank that began no collective while others did is behind; one that reports no step proves
  // nothing.
  bool is_known(const RankSight& rank) const { return tells_collectives_ || rank.step > 0; }

  std::string phase(const RankSight& rank) const {
    return tells_collectives_ ? " (phase " + phase_name(rank.phase) + ")" : "";
  }

  // Precondition: some are known.
  std::string alike() const {
    const char* who =
        known_.size() == ranks_.size() ? "all ranks " : "all ranks that tell their steps ";
    return who + pace().reached(*known_[0]);
  }

  HangVerdict accuse(const Suspects& suspects, const std::string& what) const {
    const RankSight& first = *suspects[0];
    HangVerdict verdict;
    verdict.evidence = names_of(suspects) + " " + what + phase(first);
    if (are_on_one_node(suspects)) {
      verdict.node = first.node;
      if (suspects.size() == 1) verdict.rank = first.rank;
    } else {
      verdict.evidence += "; they are on several nodes, and none of these is blamed";
    }
    return verdict;
  }

  HangVerdict nobody() const {
    HangVerdict verdict;
    if (known_.empty()) {
      verdict.evidence = "no rank reports its state; no rank is blamed";
    } else if (ranks_.size() == 1) {
      verdict.evidence = "its only rank " + pace().reached(ranks_[0]);
    } else {
      verdict.evidence = alike() + ": nothing distinguishes them; no rank is blamed";
    }
    if (std::all_of(ranks_.begin(), ranks_.end(), is_in_kernel)) {
      verdict.evidence += "; all wait uninterruptibly in the kernel (state D)";
    }
    verdict.evidence += phase(ranks_[0]);
    return verdict;
  }

  const std::vector<RankSight>& ranks_;
  const std::vector<GroupSight>& groups_;
  const bool tells_collectives_;
  Suspects known_;
};

bool is_held_by_a_stopped_rank(const std::vector<RankSight>& ranks) {
  const auto stopped = std::count_if(
      ranks.begin(), ranks.end(), [](const RankSight& rank) { return rank.process_state == "T"; });
  return stopped > 0 && stopped < static_cast<std::ptrdiff_t>(ranks.size());
}

bool waits_for_storage(const std::vector<RankSight>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const RankSight& rank) { return rank.waits_for_storage; });
}

int64_t three_times_ms(int64_t step_ns) { return 3 * step_ns / 1'000'000; }

int64_t limit_ms(const JobSight& job) {
  int64_t limit = job.limit_ms;
  if (limit == 0) {
    if (is_held_by_a_stopped_rank(job.ranks)) return kStoppedLimitMs;
    limit = std::max(job.trains ? kHangFloorMs : kCommandHangFloorMs,
                     three_times_ms(job.median_step_ns));
  }
  const bool saving = std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankSight& rank) {
    return rank.phase >= WorkerPhase::kSaving;
  });
  return saving ? std::max(limit, kSavingLimitMs) : limit;
}

int64_t plain_limit_ms(const JobSight& job) {
  int64_t limit = kPlainHangFloorMs;
  for (int i = 0; i < job.plain_hangs && limit < kHangFloorMs; ++i) limit *= 2;
  return std::max(limit, three_times_ms(job.slowest_step_ns));
}

bool computes(const RankSight& rank) {
  return rank.computing && (rank.process_state == "R" || rank.process_state == "S");
}

// Those that are waited for compute on one node, and everyone else waits.
bool groups_wait_plainly(const JobSight& job, int64_t limit) {
  const WaitsFor found = find_culprits(job.groups);
  const Suspects culprits = among(job.ranks, found.culprits);
  if (culprits.empty() || !found.cycle.empty() || !are_on_one_node(culprits)) return false;
  return std::all_of(job.ranks.begin(), job.ranks.end(), [&](const RankSight& rank) {
    if (rank.still_ms <= limit || rank.phase != WorkerPhase::kTraining) return false;
    const bool waited_for =
        std::binary_search(found.culprits.begin(), found.culprits.end(), rank.rank);
    return waited_for ? computes(rank) : rank.open_collectives > 0;
  });
}

bool hangs_plainly(const JobSight& job) {
  const bool can_tell = job.trains && job.limit_ms == 0 && job.slowest_step_ns > 0 &&
                        job.ranks.size() == static_cast<size_t>(job.world_size);
  if (!can_tell) return false;
  if (!job.groups.empty()) return groups_wait_plainly(job, plain_limit_ms(job));
  const auto pace = std::minmax_element(
      job.ranks.begin(), job.ranks.end(),
      [](const RankSight& a, const RankSight& b) { return a.collective < b.collective; });
  const RankSight& behind = *pace.first;
  if (behind.collective == pace.second->collective) return false;
  const int64_t limit = plain_limit_ms(job);
  return std::all_of(job.ranks.begin(), job.ranks.end(), [&](const RankSight& rank) {
    if (rank.still_ms <= limit || rank.phase != WorkerPhase::kTraining) return false;
    if (rank.collective > behind.collective) return rank.open_collectives > 0;
    return computes(rank) && rank.node == behind.node;
  });
}

void forget(Rank rank, std::vector<GroupSight>& groups) {
  for (GroupSight& group : groups) {
    std::erase_if(group.members,
                  [&](const GroupSight::Member& member) { return member.rank == rank; });
  }
}

}  // namespace

HangVerdict judge_hang(JobSight job) {
  const auto first_old =
      std::stable_partition(job.ranks.begin(), job.ranks.end(),
                            [&](const RankSight& rank) { return rank.unheard_ms <= job.still_ms; });
  const std::vector<RankSight> old(first_old, job.ranks.end());
  job.ranks.erase(first_old, job.ranks.end());
  for (const RankSight& rank : old) forget(rank.rank, job.groups);
  if (job.ranks.empty() || waits_for_storage(job.ranks)) return {};
  const bool plain = hangs_plainly(job);
  if (!plain && job.still_ms <= limit_ms(job)) return {};
  HangVerdict verdict = Blame(job.ranks, job.groups).verdict();
  verdict.kind = plain ? HangVerdict::Kind::kHangsPlainly : HangVerdict::Kind::kHangs;
  verdict.evidence = "no step completed for " + std::to_string(job.still_ms / 1000) +
                     " s after step " + std::to_string(job.step) + "; " + verdict.evidence;
  if (!old.empty()) {
    const Suspects unheard = select(old, [](const RankSight&) { return true; });
    verdict.evidence += "; left out, without a report since: " + names_of(unheard);
  }
  return verdict;
}

bool may_hang(const JobSight& job, int64_t quiet_ms, bool any_stopped) {
  if (job.limit_ms > 0) return job.still_ms > job.limit_ms;
  if (any_stopped) return job.still_ms > kStoppedLimitMs;
  const bool may_be_plain = job.trains && job.slowest_step_ns > 0;
  return job.still_ms > limit_ms(job) || (may_be_plain && quiet_ms > plain_limit_ms(job));
}

std::string phase_name(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kStarting:
      return "starting";
    case WorkerPhase::kLoading:
      return "loading";
    case WorkerPhase::kRendezvous:
      return "rendezvous";
    case WorkerPhase::kTraining:
      return "training";
    case WorkerPhase::kSaving:
      return "saving";
    case WorkerPhase::kFinished:
      return "finished";
  }
  return "starting";
}

}  // namespace hpctl::core
