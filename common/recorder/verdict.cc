// SPDX-License-Identifier: Apache-2.0
#include "common/recorder/verdict.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace hpctl::recorder {
namespace {

using Ranks = std::set<int32_t>;
using Calls = std::vector<const Operation*>;  // under one sequence number; more if coalesced

std::string text_of(const Ranks& ranks) { return ranks_text({ranks.begin(), ranks.end()}); }
std::string verb(const Ranks& ranks, const char* one, const char* several) {
  return ranks.size() == 1 ? one : several;
}

// No end is recorded for the parts of a coalesced call, only for the whole, which follows them.
bool is_completed(const Calls& calls) {
  const Operation& last = *calls.back();
  return last.name.find("coalesced") != std::string::npos
             ? last.completed
             : std::all_of(calls.begin(), calls.end(), [](auto* call) { return call->completed; });
}

// Whether every rank must give and get as much as the others.
bool is_even(const std::string& name) {
  static const std::set<std::string> even = {"all_reduce",
                                             "allreduce_coalesced",
                                             "broadcast",
                                             "reduce",
                                             "_all_gather_base",
                                             "_reduce_scatter_base",
                                             "all_gather_into_tensor_coalesced",
                                             "reduce_scatter_tensor_coalesced",
                                             "all_gather_single",
                                             "reduce_scatter_single"};
  return even.contains(name);
}

// The properties that must be the same on all ranks, as a text to compare.
std::string shape_of(const Calls& calls) {
  std::string text;
  for (const Operation* call : calls) {
    text += call->name + ";";
    if (!is_even(call->name)) continue;
    for (const std::string& type : call->types) text += type + ",";
    for (const int64_t n : call->input_elements) text += std::to_string(n) + ",";
    text += ">";
    for (const int64_t n : call->output_elements) text += std::to_string(n) + ",";
  }
  return text;
}

std::string call_text(const Calls& calls) {
  const Operation& call = *calls.front();
  return call.name + (call.inputs.empty() ? "" : " of " + call.inputs) +
         (call.caller.empty() ? "" : ", called at " + call.caller);
}

// One process group, through the eyes of all dumps that have it.
struct View {
  Group group;
  std::map<int32_t, std::map<int64_t, Calls>> ranks;  // with a dump; may have no calls

  int64_t stuck = 0;  // the first collective that is not completed everywhere it began; 0 = none
  Ranks waiting, absent, done;
  Ranks silent;  // members without a dump
  bool is_mismatched = false;

  std::string name() const {
    return "process group " + group.name +
           (group.description.empty() || group.description == "undefined"
                ? ""
                : " (" + group.description + ")");
  }
};

void find_where_it_stands(View& view) {
  for (const auto& [rank, calls] : view.ranks) {
    for (const auto& [sequence, call] : calls) {
      if (is_completed(call)) continue;
      if (view.stuck == 0 || sequence < view.stuck) view.stuck = sequence;
      break;
    }
  }
  if (view.stuck == 0) return;
  for (const auto& [rank, calls] : view.ranks) {
    const auto at = calls.find(view.stuck);
    // One that has begun a later one was through with this one, and its record is gone.
    const bool is_past = at == calls.end() && calls.upper_bound(view.stuck) != calls.end();
    if (at != calls.end() && !is_completed(at->second)) {
      view.waiting.insert(rank);
    } else if (at != calls.end() || is_past) {
      view.done.insert(rank);
    } else {
      view.absent.insert(rank);
    }
  }
}

std::vector<View> views_of(const std::map<int32_t, RankDump>& dumps) {
  std::map<Group, View> views;
  for (const auto& [rank, dump] : dumps) {
    std::vector<View*> of_dump;
    for (const Group& group : dump.groups) {
      View& view = views[group];
      view.group = group;
      view.ranks[rank];
      of_dump.push_back(&view);
    }
    for (const Operation& call : dump.operations) {
      if (!call.is_p2p) of_dump[call.group]->ranks[rank][call.sequence].push_back(&call);
    }
  }
  std::vector<View> found;
  for (auto& [group, view] : views) {
    for (const int32_t member : group.ranks) {
      if (!dumps.contains(member)) view.silent.insert(member);
    }
    find_where_it_stands(view);
    found.push_back(std::move(view));
  }
  return found;
}

class Judge {
 public:
  explicit Judge(const std::map<int32_t, RankDump>& dumps) : views_(views_of(dumps)) {
    for (const View& view : views_) silent_.insert(view.silent.begin(), view.silent.end());
    for (const auto& [rank, dump] : dumps) {
      const bool waits =
          std::any_of(dump.operations.begin(), dump.operations.end(),
                      [](const Operation& call) { return call.is_p2p && !call.completed; });
      if (waits) between_two_.insert(rank);
    }
  }

  Verdict judge() {
    for (View& view : views_) {
      if (view.stuck != 0) compare_calls(view);
    }
    for (const View& view : views_) {
      if (view.stuck == 0) continue;
      say_where_it_stands(view);
      if (!view.is_mismatched) suspect(view);
    }
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    Verdict verdict;
    for (auto& [order, text] : findings_) verdict.findings.push_back(std::move(text));
    const Ranks& blamed = !differing_.empty() ? differing_ : !idle_.empty() ? idle_ : late_;
    verdict.blamed.assign(blamed.begin(), blamed.end());
    verdict.silent.assign(silent_.begin(), silent_.end());
    verdict.conclusion = blamed.empty() ? "nobody is blamed: " + why_nobody() : why(blamed);
    return verdict;
  }

 private:
  // The strongest proof comes first; if all wait, they wait for a part that another group lacks.
  enum Order { kMismatch, kAbsence, kLateness, kAllWait };

  // The first collective up to the stuck one that ranks called differently.
  void compare_calls(View& view) {
    struct Kind {
      Ranks ranks;
      const Calls* example = nullptr;
    };
    std::map<int64_t, std::map<std::string, Kind>> by_sequence;
    for (const auto& [rank, calls] : view.ranks) {
      for (const auto& [sequence, call] : calls) {
        if (sequence > view.stuck) break;
        Kind& kind = by_sequence[sequence][shape_of(call)];
        kind.ranks.insert(rank);
        kind.example = &call;
      }
    }
    const auto first = std::find_if(by_sequence.begin(), by_sequence.end(),
                                    [](const auto& kinds) { return kinds.second.size() > 1; });
    if (first == by_sequence.end()) return;
    view.is_mismatched = true;
    size_t ranks = 0;
    for (const auto& [shape, kind] : first->second) ranks += kind.ranks.size();
    std::string text;
    bool has_most = false;
    for (const auto& [shape, kind] : first->second) {
      text += (text.empty() ? "" : "; ") + text_of(kind.ranks) +
              verb(kind.ranks, " calls ", " call ") + call_text(*kind.example);
      has_most = has_most || kind.ranks.size() * 2 > ranks;
    }
    findings_.emplace_back(kMismatch, view.name() + ": collective " + std::to_string(first->first) +
                                          " is not the same everywhere: " + text);
    if (!has_most) remarks_.emplace_back("which of the different calls is wrong is not known");
    for (const auto& [shape, kind] : first->second) {
      if (has_most && kind.ranks.size() * 2 <= ranks) {
        differing_.insert(kind.ranks.begin(), kind.ranks.end());
      }
    }
  }

  void say_where_it_stands(const View& view) {
    const Calls& example = view.ranks.at(*view.waiting.begin()).at(view.stuck);
    std::string text = view.name() + ": " + text_of(view.waiting) +
                       verb(view.waiting, " waits", " wait") + " in collective " +
                       std::to_string(view.stuck) + ", " + call_text(example);
    if (!view.absent.empty()) {
      text += "; " + text_of(view.absent) + verb(view.absent, " has", " have") + " not begun it";
      if (const auto last = last_of(view, view.absent)) text += ", the last was " + *last;
    }
    if (!view.done.empty()) {
      text += "; " + text_of(view.done) + verb(view.done, " has", " have") + " completed it";
    }
    if (!view.silent.empty()) text += "; of " + text_of(view.silent) + " it is not known";
    const Order order = !view.absent.empty() ? kAbsence : !view.done.empty() ? kLateness : kAllWait;
    findings_.emplace_back(order, std::move(text));
  }

  // The newest call of these ranks in this group, where they agree: "12, all_reduce of ...".
  static std::optional<std::string> last_of(const View& view, const Ranks& ranks) {
    std::optional<std::string> last;
    for (const int32_t rank : ranks) {
      const auto& calls = view.ranks.at(rank);
      if (calls.empty()) return std::nullopt;
      const std::string text =
          std::to_string(calls.rbegin()->first) + ", " + call_text(calls.rbegin()->second);
      if (last && *last != text) return std::nullopt;
      last = text;
    }
    return last;
  }

  void suspect(const View& view) {
    if (view.absent.empty()) {
      const bool may_be_absent = !view.silent.empty();
      if (!may_be_absent && !view.done.empty() && view.done.size() >= view.waiting.size()) {
        late_.insert(view.waiting.begin(), view.waiting.end());
      }
      return;
    }
    if (view.absent.size() > view.waiting.size() + view.done.size()) {
      remarks_.push_back("most ranks are absent in " + view.name() + ": " + text_of(view.waiting) +
                         " may have called one more than the others");
      return;
    }
    for (const int32_t rank : view.absent) {
      if (between_two_.contains(rank)) {
        remarks_.push_back("rank " + std::to_string(rank) +
                           " waits in point-to-point calls, which are not judged");
      } else {
        (waits_for_somebody(rank) ? excused_ : idle_).insert(rank);
      }
    }
  }

  // In a group with a rank that is absent, or may be, or called another operation.
  bool waits_for_somebody(int32_t rank) const {
    return std::any_of(views_.begin(), views_.end(), [&](const View& view) {
      return view.waiting.contains(rank) &&
             (!view.absent.empty() || !view.silent.empty() || view.is_mismatched);
    });
  }

  std::string why(const Ranks& blamed) const {
    const std::string who =
        text_of(blamed) + verb(blamed, " is to blame: it", " are to blame: they");
    if (!differing_.empty()) {
      return who + verb(blamed, " calls", " call") + " something else than most";
    }
    if (!idle_.empty()) {
      return who + verb(blamed, " keeps", " keep") + " the others waiting and" +
             verb(blamed, " waits", " wait") + " for nobody";
    }
    return who + verb(blamed, " has", " have") +
           " not completed what others have; look at the device and its links";
  }

  std::string why_nobody() const {
    const bool anybody =
        std::any_of(views_.begin(), views_.end(), [](const View& view) { return view.stuck != 0; });
    if (!anybody) return "no rank waits in a collective";
    if (!silent_.empty()) {
      return text_of(silent_) + verb(silent_, " has", " have") + " left no dump";
    }
    if (!remarks_.empty()) return remarks_.front();
    if (!excused_.empty()) return text_of(excused_) + " wait for each other";
    return "all have begun the same, and none has completed it";
  }

  std::vector<View> views_;
  Ranks silent_;
  Ranks between_two_;  // wait in a call of two ranks
  Ranks differing_;    // called something else than most
  Ranks idle_;         // absent where others wait, and wait for nobody
  Ranks excused_;      // absent likewise, because they wait for somebody
  Ranks late_;         // have not completed what others have
  std::vector<std::pair<Order, std::string>> findings_;
  std::vector<std::string> remarks_;
};

}  // namespace

Verdict judge(const std::map<int32_t, RankDump>& dumps) { return Judge(dumps).judge(); }

std::string ranks_text(const std::vector<int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
    i = last;
  }
  return text;
}

}  // namespace hpctl::recorder
