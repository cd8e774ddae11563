// SPDX-License-Identifier: Apache-2.0
#include "controller/core/explain.h"

#include <algorithm>
#include <map>
#include <set>

namespace hpctl::core {

namespace {

// State changes are named after the state; these are events.
bool is_state_change(const LogEntry& entry) {
  return entry.type.starts_with("Job") && entry.type != "JobSubmitted" &&
         entry.type != "JobAdopted" && entry.type != "JobRequeued";
}

// For a job that finished: its beginning, and the faults that it survived.
bool is_told_at_the_end(const LogEntry& entry) {
  for (const char* type :
       {"JobSubmitted", "JobAdopted", "JobRequeued", "JobRecovering", "CauseFound", "ReplaceNode",
        "RebootNode", "NodeReplaced", "NodeGivenBack", "TrainingRolledBack", "StacksTaken",
        "FaultInjected", "StragglerFound", "StragglerOver", "SpareFoundUnfit"}) {
    if (entry.type == type) return true;
  }
  return false;
}

bool is_refused(const std::vector<const LogEntry*>& entries) {
  return std::any_of(entries.begin(), entries.end(),
                     [](const LogEntry* entry) { return entry->type == "Refused"; });
}

// What holds a job up until the next attempt, or until a person does something.
bool is_obstacle(const LogEntry& entry) {
  return entry.type == "Retry" || entry.type == "ActionFailed" || entry.type == "NotPossible" ||
         entry.type == "StillStopping" || entry.type == "WouldRecover";
}

// For a spare: it may be given ranks again.
bool is_end_of_unfitness(const LogEntry& entry) {
  return entry.type == "NodeReleased" || entry.type == "NodeReplaced" ||
         entry.type == "NodeGivenBack";
}

// The controller that asked for a requeue, or was lost in the middle of a recovery, left a story
// that the adoption goes on with: its newest entry. Seq{} = there is none.
Seq before_adoption(const std::map<Seq, std::vector<const LogEntry*>>& by_seq, Seq adoption) {
  for (auto it = std::make_reverse_iterator(by_seq.lower_bound(adoption)); it != by_seq.rend();
       ++it) {
    for (const LogEntry* entry : it->second) {
      if (entry->type == "RequeueJob" || entry->type == "JobRecovering") return it->first;
      if (is_state_change(*entry)) return Seq{};
    }
  }
  return Seq{};
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text;
}

// "; survived 2 faults: worker 3 on n1 died of SIGKILL at step 17; n0 was lost: ..."
std::string survived(const std::vector<LogEntry>& chain) {
  std::vector<std::string> faults;
  for (const LogEntry& entry : chain) {
    if (entry.type == "JobRecovering") faults.push_back(entry.cause);
    // The cause that was reported after its consequence.
    if (entry.type == "CauseFound" && !faults.empty()) faults.back() = entry.cause;
  }
  if (faults.empty()) return "";
  std::string text =
      "; survived " + std::to_string(faults.size()) + (faults.size() == 1 ? " fault" : " faults");
  for (size_t i = 0; i < faults.size(); ++i) text += (i == 0 ? ": " : "; ") + faults[i];
  return text;
}

// The event that led to the present state. Unfit spares are listed beside it.
const LogEntry& beginning_of(const std::vector<LogEntry>& chain) {
  Seq beside;
  for (const LogEntry& entry : chain) {
    if (entry.type == "SpareFoundUnfit") beside = entry.seq;
    if (entry.seq != beside) return entry;
  }
  return chain.front();
}

}  // namespace

std::vector<LogEntry> explain(const std::vector<LogEntry>& log, JobId job) {
  std::map<Seq, std::vector<const LogEntry*>> by_seq;
  const LogEntry* last = nullptr;
  for (const LogEntry& entry : log) {
    // An event of the whole controller (its restart) may be part of any job's story.
    if (entry.job != job && entry.job != JobId{}) continue;
    by_seq[entry.seq].push_back(&entry);
    if (entry.job != job) continue;
    const bool counts = is_state_change(entry) || entry.type == "RequeueJob" ||
                        entry.type == "NotPossible";  // what somebody may have to do about it
    if (last == nullptr || counts) last = &entry;
  }
  std::set<Seq> story;
  for (Seq at = last == nullptr ? Seq{} : last->seq; by_seq.contains(at);) {
    story.insert(at);
    Seq before;  // the newest earlier event that any entry of this step names
    for (const LogEntry* entry : by_seq.at(at)) {
      if (entry->type != "Refused" && entry->because < at)
        before = std::max(before, entry->because);
      if (entry->type == "JobAdopted") before = std::max(before, before_adoption(by_seq, at));
    }
    at = before;
  }
  // Later facts about it belong to the story as well.
  for (const auto& [seq, entries] : by_seq) {
    for (const LogEntry* entry : entries) {
      const bool belongs = entry->type == "CauseFound" || entry->type == "StacksTaken" ||
                           entry->type == "StandbySteppedIn";
      if (belongs && story.contains(entry->because)) story.insert(seq);
    }
  }
  // So do faults that were injected since the job last ran: they may be what it began with.
  std::set<Seq> injected;
  for (const auto& [seq, entries] : by_seq) {
    for (const LogEntry* entry : entries) {
      if (entry->type == "FaultInjected") injected.insert(seq);
      if (entry->type == "JobRunning") injected.clear();
      const bool begins = entry->type == "JobRecovering" || entry->type == "CauseAwaited";
      if (begins && story.contains(seq)) story.merge(injected);
    }
  }
  // And who holds the job up at present.
  std::map<std::string, Seq> slow;
  for (const auto& [seq, entries] : by_seq) {
    for (const LogEntry* entry : entries) {
      if (entry->type == "StragglerFound") slow[entry->node] = seq;
      if (entry->type == "StragglerOver") slow.erase(entry->node);
      if (is_state_change(*entry)) slow.clear();
    }
  }
  for (const auto& [node, seq] : slow) story.insert(seq);
  // And which spares cannot take over.
  std::map<std::string, Seq> unfit;
  for (const auto& [seq, entries] : by_seq) {
    for (const LogEntry* entry : entries) {
      if (entry->type == "SpareFoundUnfit" && !is_refused(entries)) unfit[entry->node] = seq;
      if (is_end_of_unfitness(*entry)) unfit.erase(entry->node);
    }
  }
  for (const auto& [node, seq] : unfit) story.insert(seq);
  // And the newest thing that could not be done since the state began: the chain ends there.
  Seq obstacle;
  for (const auto& [seq, entries] : by_seq) {
    for (const LogEntry* entry : entries) {
      if (is_obstacle(*entry) && !is_refused(entries)) obstacle = seq;
      if (is_state_change(*entry)) obstacle = Seq{};
    }
  }
  if (obstacle != Seq{}) story.insert(obstacle);
  const bool finished = last != nullptr && last->type == "JobFinished";
  std::vector<LogEntry> chain;
  for (const auto& [seq, entries] : by_seq) {
    for (const LogEntry* entry : entries) {
      const bool told =
          story.contains(seq) ? entry->type != "Refused" : finished && is_told_at_the_end(*entry);
      if (told) chain.push_back(*entry);
    }
  }
  return chain;
}

std::string summarize(const std::vector<LogEntry>& chain) {
  const auto state = std::find_if(chain.rbegin(), chain.rend(), is_state_change);
  if (state == chain.rend()) return "nothing has happened yet";
  std::string text = upper(state->type.substr(3)) + ": " + state->cause;
  if (state->type == "JobFinished") return text + survived(chain);
  const auto found = std::find_if(chain.begin(), chain.end(),
                                  [](const LogEntry& entry) { return entry.type == "CauseFound"; });
  const LogEntry& root = found == chain.end() ? beginning_of(chain) : *found;
  const bool is_said = root.cause.find(state->cause) != std::string::npos;
  if (root.seq == state->seq || is_said) return text;
  return text + "; it began with: " + root.cause;
}

}  // namespace hpctl::core
