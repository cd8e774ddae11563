// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/shared_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/process/processors.h"

namespace hpctl {

namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kPage = 4096;
// Some tens of microseconds, less than it takes to sleep and to be woken.
constexpr int kSpins = 1000;

constexpr size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// The kernel looks at the word itself.
uint32_t* word_of(std::atomic<uint32_t>& futex) { return reinterpret_cast<uint32_t*>(&futex); }

void futex_wait(std::atomic<uint32_t>& futex, uint32_t value, SharedSegment::Clock::time_point at) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch());
  const timespec until = {since.count() / 1'000'000'000, since.count() % 1'000'000'000};
  ::syscall(SYS_futex, word_of(futex), FUTEX_WAIT_BITSET, value, &until, nullptr,
            FUTEX_BITSET_MATCH_ANY);
}

void futex_wake(std::atomic<uint32_t>& futex) {
  ::syscall(SYS_futex, word_of(futex), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Spinning helps only while the awaited ranks have their own processors.
int spins_among(int ranks) { return allowed_processors() >= ranks ? kSpins : 0; }

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// A rank that changes the state that another waits for counts up and then looks whether that rank
// sleeps; the waiting rank announces its sleep and then has the kernel compare the count. One of
// the two sees the other.
struct alignas(kCacheLine) SharedSegment::Bell {
  std::atomic<uint32_t> rung;
  std::atomic<RankSet> wanted;  // 0 = awake
};

struct alignas(kCacheLine) SharedSegment::Readers {
  std::array<std::atomic<RankSet>, kSlots> of_slot;
};

struct alignas(kCacheLine) SharedSegment::Queue {
  struct Entry {
    size_t slot;
    size_t at;  // in the memory
    size_t bytes;
    uint64_t collective;
  };
  std::atomic<uint64_t> published;  // number n is at n % kSlots
  std::array<Entry, kSlots> entries;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free);

SharedSegment::Layout::Layout(int ranks) {
  const auto n = static_cast<size_t>(ranks);
  readers = n * sizeof(Bell);
  queues = readers + n * sizeof(Readers);
  slots = rounded_up(queues + n * n * sizeof(Queue), kPage);
  rooms = slots + n * kSlots * kSlotBytes;
  end = rooms + n * kRoomBytes;
}

Result<UniqueFd> SharedSegment::create(int ranks) {
  HP_CHECK(ranks >= 2 && ranks <= kMostRanks);
  UniqueFd file(::memfd_create("hptrain-collectives", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return errno_error("cannot create a memory file for collectives");
  if (::ftruncate(file.get(), static_cast<off_t>(Layout(ranks).end)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return errno_error("cannot prepare the memory file for collectives");
  }
  return file;
}

Result<std::shared_ptr<std::byte>> SharedSegment::map(const UniqueFd& file, int ranks) {
  HP_CHECK(ranks >= 2 && ranks <= kMostRanks);
  const size_t bytes = Layout(ranks).end;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) {
    return errno_error("cannot map " + std::to_string(bytes >> 20) + " MiB for collectives");
  }
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory),
                                    [bytes](std::byte* mapped) { ::munmap(mapped, bytes); });
}

SharedSegment::SharedSegment(std::shared_ptr<std::byte> memory, int rank, int ranks)
    : layout_(ranks),
      memory_(std::move(memory)),
      rank_(rank),
      ranks_(ranks),
      spins_(spins_among(ranks)),
      taken_(static_cast<size_t>(ranks)) {
  HP_CHECK(rank >= 0 && rank < ranks);
}

// The kernel has zeroed the memory, which is how all of it begins.
SharedSegment::Bell& SharedSegment::bell_of(int rank) const {
  return reinterpret_cast<Bell*>(memory_.get())[rank];
}

SharedSegment::Readers& SharedSegment::readers_of(int rank) const {
  return reinterpret_cast<Readers*>(memory_.get() + layout_.readers)[rank];
}

SharedSegment::Queue& SharedSegment::queue(int from, int to) const {
  return reinterpret_cast<Queue*>(memory_.get() + layout_.queues)[from * ranks_ + to];
}

std::byte* SharedSegment::slot(int rank, size_t number) const {
  return memory_.get() + layout_.slots + (static_cast<size_t>(rank) * kSlots + number) * kSlotBytes;
}

size_t SharedSegment::number_of(const std::byte* own_slot) const {
  return static_cast<size_t>(own_slot - slot(rank_, 0)) / kSlotBytes;
}

std::byte* SharedSegment::room() const {
  return memory_.get() + layout_.rooms + static_cast<size_t>(rank_) * kRoomBytes;
}

std::byte* SharedSegment::allocate(size_t bytes) {
  if (bytes > kRoomBytes - room_used_) return nullptr;
  std::byte* made = room() + room_used_;
  room_used_ += rounded_up(bytes, kPage);
  return made;
}

bool SharedSegment::is_in_room(const void* data) const {
  return data >= room() && data < room() + kRoomBytes;
}

RankSet SharedSegment::readers_of(std::span<const std::byte> part_of_room) const {
  RankSet all = 0;
  for (size_t s = 0; s < kSlots; ++s) {
    const std::byte* data = published_[s];
    if (data < part_of_room.data() || data >= part_of_room.data() + part_of_room.size()) continue;
    // Later writes there come after their reads.
    all |= readers_of(rank_).of_slot[s].load(std::memory_order_acquire);
  }
  return all;
}

std::byte* SharedSegment::free_slot() {
  const Readers& readers = readers_of(rank_);
  for (size_t s = 0; s < kSlots; ++s) {
    if (readers.of_slot[s].load(std::memory_order_acquire) == 0) return slot(rank_, s);
  }
  return nullptr;
}

RankSet SharedSegment::readers() const {
  RankSet all = 0;
  for (const auto& readers : readers_of(rank_).of_slot) {
    all |= readers.load(std::memory_order_relaxed);
  }
  return all;
}

void SharedSegment::publish(const std::byte* filled, size_t bytes, uint64_t collective,
                            RankSet readers) {
  HP_CHECK(bytes <= kSlotBytes);
  enqueue(number_of(filled), filled, bytes, collective, readers);
}

bool SharedSegment::publish_in_room(const void* data, size_t bytes, uint64_t collective,
                                    RankSet readers) {
  HP_CHECK(is_in_room(data));
  const std::byte* free = free_slot();
  if (free == nullptr) return false;
  enqueue(number_of(free), static_cast<const std::byte*>(data), bytes, collective, readers);
  return true;
}

void SharedSegment::enqueue(size_t number, const std::byte* data, size_t bytes, uint64_t collective,
                            RankSet readers) {
  HP_CHECK(readers != 0);
  published_[number] = data;
  // Before any rank can read, and so before any can clear a bit.
  readers_of(rank_).of_slot[number].store(readers, std::memory_order_relaxed);
  for (int to = 0; to < ranks_; ++to) {
    if ((readers & only_rank(to)) == 0) continue;
    Queue& q = queue(rank_, to);
    const uint64_t n = q.published.load(std::memory_order_relaxed);
    q.entries[n % kSlots] = {number, static_cast<size_t>(data - memory_.get()), bytes, collective};
    q.published.store(n + 1, std::memory_order_release);
    ring(to, only_rank(rank_));
  }
}

std::optional<SharedSegment::Piece> SharedSegment::front(int from) const {
  const Queue& q = queue(from, rank_);
  const uint64_t n = taken_[static_cast<size_t>(from)];
  if (q.published.load(std::memory_order_acquire) == n) return std::nullopt;
  const Queue::Entry& entry = q.entries[n % kSlots];
  HP_CHECK(entry.slot < kSlots && entry.at <= layout_.end && entry.bytes <= layout_.end - entry.at);
  return Piece{memory_.get() + entry.at, entry.bytes, entry.collective, entry.at >= layout_.rooms};
}

void SharedSegment::pop(int from) {
  const uint64_t n = taken_[static_cast<size_t>(from)]++;
  const size_t number = queue(from, rank_).entries[n % kSlots].slot;
  std::atomic<RankSet>& readers = readers_of(from).of_slot[number];
  const RankSet before = readers.fetch_and(~only_rank(rank_), std::memory_order_acq_rel);
  if (before == only_rank(rank_)) ring(from, kForSlot);
}

uint32_t SharedSegment::bell() const { return bell_of(rank_).rung.load(); }

void SharedSegment::ring(int rank, RankSet for_whom) {
  Bell& bell = bell_of(rank);
  bell.rung.fetch_add(1);
  if ((bell.wanted.load() & for_whom) != 0) futex_wake(bell.rung);
}

void SharedSegment::wait(uint32_t heard, RankSet wanted, Clock::time_point deadline) {
  Bell& bell = bell_of(rank_);
  for (int i = 0; i < spins_; ++i) {
    if (bell.rung.load(std::memory_order_relaxed) != heard) return;
    pause_briefly();
  }
  bell.wanted.store(wanted);
  futex_wait(bell.rung, heard, deadline);
  bell.wanted.store(0, std::memory_order_relaxed);
}

// Even if it waits only for a time.
void SharedSegment::wake() {
  std::atomic<uint32_t>& rung = bell_of(rank_).rung;
  rung.fetch_add(1);
  futex_wake(rung);
}

}  // namespace hpctl
