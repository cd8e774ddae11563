// SPDX-License-Identifier: Apache-2.0
#include "agent/stacks/rank_stacks.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>

#include "common/base/clock.h"
#include "common/base/printable.h"

namespace hpctl::stacks {
namespace {

constexpr size_t kLineBytes = 512;

std::string text_of(const Frame& frame) {
  return printable_line(frame.function + " (" + frame.module + ")", kLineBytes);
}

// Without the parameters, "ns::f (libx.so)": for a line of the history.
std::string short_text_of(const Frame& frame) {
  Frame named = frame;
  size_t parameters = named.function.find('(');
  while (parameters != std::string::npos &&
         named.function.compare(parameters, 10, "(anonymous") == 0) {
    parameters = named.function.find('(', parameters + 1);
  }
  if (parameters != 0) named.function = named.function.substr(0, parameters);
  return text_of(named);
}

// Where every thread that waits is; it says nothing of why.
bool is_c_library(const Frame& frame) {
  for (const char* begin : {"libc.so", "libpthread", "ld-linux", "libstdc++", "[vdso"}) {
    if (frame.module.starts_with(begin)) return true;
  }
  return false;
}

std::string head_of(const Thread& thread) {
  return "thread " + std::to_string(thread.tid) + " \"" + printable_line(thread.name, kLineBytes) +
         "\": " + (thread.kernel.empty() ? "gone" : thread.kernel) + "\n";
}

std::string frames_of(const ThreadStack& stack) {
  std::string text;
  for (size_t i = 0; i < stack.frames.size(); ++i) {
    text += "  #" + std::to_string(i) + " " + text_of(stack.frames[i]) + "\n";
  }
  if (stack.frames.size() == kMostFrames) text += "  and more\n";
  if (!stack.remark.empty()) text += "  " + stack.remark + "\n";
  return text;
}

std::string text_of(const ProcessStacks& process) {
  std::string text;
  for (const std::string& trouble : process.troubles) text += trouble + "\n";
  std::vector<std::pair<std::string, std::string>> groups;  // frames, heads
  for (const ThreadStack& stack : process.threads) {
    std::string frames = frames_of(stack);
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return group.first == frames; });
    if (same != groups.end()) {
      same->second += head_of(stack.thread);
    } else {
      groups.emplace_back(std::move(frames), head_of(stack.thread));
    }
  }
  for (const auto& [frames, heads] : groups) text += "\n" + heads + frames;
  return text;
}

}  // namespace

std::string to_text(const RankStacks& rank, int64_t wall_ms) {
  std::string text;
  for (const ProcessStacks& process : rank.processes) {
    text += (text.empty() ? "rank " + std::to_string(rank.rank) + " of generation " +
                                std::to_string(rank.generation) + " at " + format_wall_ms(wall_ms) +
                                ", process "
                          : "\nits child process ") +
            std::to_string(process.pid) + "\n" + text_of(process);
  }
  if (text.size() > kMostFileBytes) {
    text.resize(text.rfind('\n', kMostFileBytes) + 1);
    text += "... cut off here\n";
  }
  return text;
}

std::string telling_frame(const RankStacks& rank) {
  if (rank.processes.empty()) return "nothing is known of it";
  const ProcessStacks& worker = rank.processes.front();
  if (worker.threads.empty()) {
    return worker.troubles.empty() ? "it has no threads" : worker.troubles.front();
  }
  const ThreadStack& main = worker.threads.front();
  const auto named = [](const Frame& frame) { return frame.named; };
  const auto inner = std::find_if(main.frames.begin(), main.frames.end(), named);
  const auto caller = std::find_if(inner, main.frames.end(), [](const Frame& frame) {
    return frame.named && !is_c_library(frame);
  });
  if (inner != main.frames.end()) {
    const bool waits = caller != inner && caller != main.frames.end();
    return short_text_of(*inner) + (waits ? " < " + short_text_of(*caller) : "");
  }
  if (!main.frames.empty()) return short_text_of(main.frames.front());
  return "state " + main.thread.kernel;
}

std::vector<std::string> outdated(const std::vector<std::string>& names) {
  const auto generation_of = [](const std::string& name) -> uint64_t {
    return name.starts_with("g") ? std::strtoull(name.c_str() + 1, nullptr, 10) : 0;
  };
  std::set<uint64_t, std::greater<>> generations;
  for (const std::string& name : names) generations.insert(generation_of(name));
  generations.erase(0);
  std::vector<std::string> old;
  if (generations.size() <= kHangsKept) return old;
  const uint64_t oldest_kept = *std::next(generations.begin(), kHangsKept - 1);
  for (const std::string& name : names) {
    const uint64_t generation = generation_of(name);
    if (generation != 0 && generation < oldest_kept) old.push_back(name);
  }
  return old;
}

}  // namespace hpctl::stacks
