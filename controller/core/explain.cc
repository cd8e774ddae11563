// SPDX-License-Identifier: Apache-2.0
#include "controller/core/explain.h"

#include <algorithm>
#include <map>

namespace hpctl::core {

namespace {

// State changes are named after the state; JobSubmitted is the event that precedes the first.
bool is_state_change(const LogEntry& entry) {
  return entry.type.starts_with("Job") && entry.type != "JobSubmitted";
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text;
}

}  // namespace

std::vector<LogEntry> explain(const std::vector<LogEntry>& log, JobId job) {
  std::map<Seq, std::vector<const LogEntry*>> by_seq;
  const LogEntry* last = nullptr;
  for (const LogEntry& entry : log) {
    // What concerns the whole controller (its restart) may be part of any job's story.
    if (entry.job != job && entry.job != JobId{}) continue;
    by_seq[entry.seq].push_back(&entry);
    if (entry.job != job) continue;
    if (last == nullptr || is_state_change(entry)) last = &entry;
  }
  std::vector<std::vector<LogEntry>> groups;
  for (Seq at = last == nullptr ? Seq{} : last->seq; at != Seq{};) {
    const auto it = by_seq.find(at);
    if (it == by_seq.end()) break;
    groups.emplace_back();
    Seq before;  // the newest earlier event that any entry of this step names
    for (const LogEntry* entry : it->second) {
      if (entry->type == "Refused") continue;
      groups.back().push_back(*entry);
      if (entry->because < at) before = std::max(before, entry->because);
    }
    at = before;
  }
  std::vector<LogEntry> chain;
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    chain.insert(chain.end(), group->begin(), group->end());
  }
  return chain;
}

std::string summarize(const std::vector<LogEntry>& chain) {
  const auto state = std::find_if(chain.rbegin(), chain.rend(), is_state_change);
  if (state == chain.rend()) return "nothing has happened yet";
  const std::string text = upper(state->type.substr(3)) + ": " + state->cause;
  const LogEntry& root = chain.front();
  if (root.seq == state->seq) return text;
  return text + "; it began with: " + root.cause;
}

}  // namespace hpctl::core
