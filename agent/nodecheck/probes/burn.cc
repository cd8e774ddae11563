// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/probes/burn.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "common/base/file.h"

namespace hpctl::agent {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr uint64_t kPrime = 0x100000001b3ULL;  // of FNV-1a
constexpr size_t kSide = 64;
constexpr size_t kPieceWords = size_t{1} << 20;  // 8 MiB
constexpr size_t kLeastPieces = 4;

// A chain of products of a matrix, whose rounding depends on every operation before it. Each round
// is the same work; the result after so many rounds is the same on every processor.
class Chain {
 public:
  Chain() {
    for (size_t i = 0; i < a_.size(); ++i) {
      a_[i] = 1.0 / static_cast<double>(1 + (i * 7'919) % 1'009);
      x_[i] = a_[i];
    }
  }
  // The bits of what came out.
  uint64_t round() {
    for (size_t i = 0; i < kSide; ++i) {
      for (size_t j = 0; j < kSide; ++j) {
        double sum = 0;
        for (size_t k = 0; k < kSide; ++k) sum += a_[i * kSide + k] * x_[k * kSide + j];
        y_[i * kSide + j] = sum;
      }
    }
    uint64_t bits = 0;
    for (size_t i = 0; i < y_.size(); ++i) {
      const double scaled = y_[i] / y_[0] + 1e-3;
      bits = (bits ^ std::bit_cast<uint64_t>(scaled)) * kPrime;
      x_[i] = scaled;
    }
    return bits;
  }

 private:
  std::vector<double> a_ = std::vector<double>(kSide * kSide);
  std::vector<double> x_ = std::vector<double>(kSide * kSide);
  std::vector<double> y_ = std::vector<double>(kSide * kSide);
};

// Results of the chain of one thread, one in so many rounds.
constexpr size_t kRoundsPerResult = 64;

std::vector<uint64_t> compute(SteadyClock::time_point until) {
  Chain chain;
  std::vector<uint64_t> results;
  uint64_t all = 0;  // of every round so far: a wrong one stays seen when the chain has recovered
  while (SteadyClock::now() < until) {
    for (size_t i = 0; i < kRoundsPerResult; ++i) all = (all * kPrime) ^ chain.round();
    results.push_back(all);
  }
  return results;
}

// Threads whose result at some point is not what most have there.
int count_odd_ones(const std::vector<std::vector<uint64_t>>& results) {
  std::vector<bool> odd(results.size());
  size_t longest = 0;
  for (const auto& of_thread : results) longest = std::max(longest, of_thread.size());
  for (size_t at = 0; at < longest; ++at) {
    std::map<uint64_t, int> votes;
    for (const auto& of_thread : results) {
      if (at < of_thread.size()) ++votes[of_thread[at]];
    }
    const auto most =
        std::max_element(votes.begin(), votes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    for (size_t i = 0; i < results.size(); ++i) {
      if (at < results[i].size() && results[i][at] != most->first) odd[i] = true;
    }
  }
  return static_cast<int>(std::count(odd.begin(), odd.end(), true));
}

struct MemoryWork {
  uint64_t* words = nullptr;
  size_t pieces = 0;
  std::atomic<size_t> next{0};
  std::atomic<size_t> done{0};
  std::atomic<uint64_t> wrong{0};
};

uint64_t pattern(size_t index, uint64_t flip) { return (index * 0x9e3779b97f4a7c15ULL) ^ flip; }

// Each piece is written whole before it is read, so that it has left the caches; then again with
// every bit inverted.
void keep(MemoryWork& work, SteadyClock::time_point until) {
  for (size_t piece = work.next++; piece < work.pieces && SteadyClock::now() < until;
       piece = work.next++) {
    const size_t first = piece * kPieceWords;
    for (const uint64_t flip : {uint64_t{0}, ~uint64_t{0}}) {
      volatile uint64_t* words = work.words + first;
      for (size_t i = 0; i < kPieceWords; ++i) words[i] = pattern(first + i, flip);
      uint64_t wrong = 0;
      for (size_t i = 0; i < kPieceWords; ++i) wrong += words[i] != pattern(first + i, flip);
      work.wrong += wrong;
    }
    ++work.done;
  }
}

template <typename Work>
void on_all(size_t threads, Work work) {
  std::vector<std::thread> all;
  for (size_t i = 0; i < threads; ++i) all.emplace_back(work, i);
  for (std::thread& thread : all) thread.join();
}

void burn_memory(size_t threads, const BurnLimits& limits, BurnResult& result) {
  const auto text = read_file("/proc/meminfo", 1U << 16);
  const auto available_kib = text.ok() ? find_kib(*text, "MemAvailable") : std::nullopt;
  if (!available_kib) return;
  MemoryWork work;
  const uint64_t most = std::min(static_cast<uint64_t>(*available_kib) * 512, limits.memory_bytes);
  work.pieces = most / sizeof(uint64_t) / kPieceWords;
  if (work.pieces < kLeastPieces) return;
  const size_t bytes = work.pieces * kPieceWords * sizeof(uint64_t);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  work.words = static_cast<uint64_t*>(memory);
  const auto until = SteadyClock::now() + limits.memory;
  on_all(threads, [&](size_t) { keep(work, until); });
  ::munmap(memory, bytes);
  result.memory_bytes = work.done * kPieceWords * sizeof(uint64_t);
  result.wrong_words = work.wrong;
}

}  // namespace

BurnResult burn(const BurnLimits& limits) {
  const auto begin = SteadyClock::now();
  const size_t threads = std::max(1U, std::thread::hardware_concurrency());
  BurnResult result;
  result.threads = static_cast<int>(threads);
  std::vector<std::vector<uint64_t>> results(threads);
  on_all(threads, [&](size_t i) { results[i] = compute(begin + limits.compute); });
  result.wrong_threads = count_odd_ones(results);
  burn_memory(threads, limits, result);
  result.seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count();
  return result;
}

}  // namespace hpctl::agent
