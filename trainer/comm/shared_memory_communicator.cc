// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/shared_memory_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/join.h"
#include "common/worker/injected_fault.h"
#include "trainer/comm/ordered_sum.h"

namespace hpctl {

namespace {

// A cache line: every rank's part of a slot begins at one.
constexpr size_t kLine = 64;
// How long a rank that waits sleeps at most while its other communicators have something under way.
constexpr std::chrono::milliseconds kLookAtSiblings{1};

size_t divided(size_t a, size_t b) { return (a + b - 1) / b; }

}  // namespace

// The missing parts of a collective, and of those before it.
struct SharedMemoryCommunicator::Needs {
  RankSet pieces = 0;                                // of these ranks
  RankSet readers = 0;                               // that have a slot that is needed
  Clock::time_point due = Clock::time_point::max();  // of the first that may not begin yet
};

// What is to be added, and where the sums go.
struct SharedMemoryCommunicator::Sums {
  NumberType from;
  const void* input;
  size_t stride;  // numbers, as `chunk`
  size_t chunk;
  std::vector<int> blocks;
  NumberType to;
  void* output;
};

// A collective from its beginning to its end. Outgoing data are published once, and incoming data
// are taken, each as far as possible now.
class SharedMemoryCommunicator::Work : public Collective {
 public:
  Work(SharedMemoryCommunicator& owner, const char* what, uint64_t sequence)
      : owner_(owner),
        what_(what),
        sequence_(sequence),
        number_(++owner.number_),
        due_(owner.due_of_next()) {
    owner_.begun_.push_back(this);
  }
  ~Work() override {
    const auto found = std::find(owner_.begun_.begin(), owner_.begun_.end(), this);
    if (found == owner_.begun_.end()) return;
    owner_.begun_.erase(found);
    if (owner_.broken_.empty()) owner_.broken_ = "a collective before it was given up";
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  Outcome wait() override { return owner_.wait(*this); }

  const char* what() const { return what_; }
  uint64_t sequence() const { return sequence_; }
  Clock::time_point due() const { return due_; }
  bool is_published() const { return is_published_; }
  // From whom something has yet to come.
  RankSet missing() const { return missing_; }
  bool is_done() const { return is_published_ && missing_ == 0; }

  void publish_what_fits() { is_published_ = publish(); }
  void take_what_has_come() {
    if (missing_ != 0) missing_ = take();
  }

 protected:
  // True when nothing is left to be published.
  virtual bool publish() = 0;
  // Returns from whom something has yet to come.
  virtual RankSet take() = 0;

  int rank() const { return owner_.rank(); }
  int world_size() const { return owner_.world_size(); }
  RankSet others() const { return owner_.others_; }
  SharedSegment& segment() { return *owner_.segment_; }
  void set_missing(RankSet ranks) { missing_ = ranks; }

  std::byte* free_slot() { return segment().free_slot(); }
  void pass(const std::byte* slot, size_t bytes, RankSet readers) {
    segment().publish(slot, bytes, number_, readers);
  }

  // True when all is published where it lies, false where it must wait for a slot's readers.
  bool pass_in_room(const void* data, size_t bytes, RankSet readers) {
    return segment().publish_in_room(data, bytes, number_, readers);
  }

  // The next piece of this collective from `from`: of so many bytes from a slot, of
  // `bytes_in_room` from its room. nullopt where it has not come.
  std::optional<SharedSegment::Piece> next_piece(int from, size_t bytes, size_t bytes_in_room) {
    const std::optional<SharedSegment::Piece> piece = segment().front(from);
    if (!piece || piece->collective < number_) return std::nullopt;
    const size_t expected = piece->in_room ? bytes_in_room : bytes;
    if (piece->collective == number_ && piece->bytes == expected) return piece;
    owner_.broken_ = owner_.names_of(only_rank(from)) +
                     " is at another collective, or at one of another " +
                     "size; all ranks must run the same program on the same job";
    return std::nullopt;
  }

  // Piece by piece, `bytes` of one rank; `taken` have come. True when all have.
  bool take_into(std::byte* to, size_t bytes, int from, size_t& pieces_taken) {
    const size_t pieces = pieces_of(bytes);
    for (; pieces_taken < pieces; ++pieces_taken) {
      const size_t offset = pieces_taken * SharedSegment::kSlotBytes;
      const size_t n = std::min(SharedSegment::kSlotBytes, bytes - offset);
      const auto piece = next_piece(from, n, bytes);
      if (!piece) return false;
      std::memcpy(to + offset, piece->data, piece->bytes);
      segment().pop(from);
      if (piece->in_room) pieces_taken = pieces - 1;
    }
    return true;
  }
  // Likewise to `readers`.
  bool publish_from(const std::byte* from, size_t bytes, RankSet readers) {
    for (; pieces_published_ < pieces_of(bytes); ++pieces_published_) {
      std::byte* slot = free_slot();
      if (slot == nullptr) return false;
      const size_t offset = pieces_published_ * SharedSegment::kSlotBytes;
      const size_t n = std::min(SharedSegment::kSlotBytes, bytes - offset);
      std::memcpy(slot, from + offset, n);
      pass(slot, n, readers);
    }
    return true;
  }

  size_t pieces_published_ = 0;

 private:
  // An empty piece is one too: that it has come says that its rank has.
  static size_t pieces_of(size_t bytes) {
    return std::max<size_t>(1, divided(bytes, SharedSegment::kSlotBytes));
  }

  SharedMemoryCommunicator& owner_;
  const char* what_;
  uint64_t sequence_;
  uint64_t number_;
  Clock::time_point due_;
  bool is_published_ = false;
  RankSet missing_ = 0;
};

class SharedMemoryCommunicator::AllGather final : public Work {
 public:
  AllGather(SharedMemoryCommunicator& owner, uint64_t sequence, std::byte* buffer, size_t stride,
            size_t chunk)
      : Work(owner, "all-gather", sequence),
        buffer_(buffer),
        stride_(stride),
        chunk_(chunk),
        taken_(static_cast<size_t>(world_size())) {
    set_missing(others());
  }

 private:
  bool publish() override {
    const std::byte* own = chunk_of(rank());
    if (segment().is_in_room(own)) return pass_in_room(own, chunk_, others());
    return publish_from(own, chunk_, others());
  }

  RankSet take() override {
    RankSet missing = 0;
    for (int from = 0; from < world_size(); ++from) {
      if (from == rank()) continue;
      if (!take_into(chunk_of(from), chunk_, from, taken_[static_cast<size_t>(from)])) {
        missing |= only_rank(from);
      }
    }
    return missing;
  }

  std::byte* chunk_of(int rank) { return buffer_ + static_cast<size_t>(rank) * stride_; }

  std::byte* buffer_;
  size_t stride_;
  size_t chunk_;
  std::vector<size_t> taken_;  // pieces, by rank
};

// In segments, of which a slot has the part of every other rank, and which are added one by one. An
// input in its rank's room is one piece for all segments.
class SharedMemoryCommunicator::ReduceScatter final : public Work {
 public:
  ReduceScatter(SharedMemoryCommunicator& owner, uint64_t sequence, Sums sums)
      : Work(owner, "reduce-scatter", sequence),
        sums_(std::move(sums)),
        input_(static_cast<const std::byte*>(sums_.input)),
        stride_(sums_.stride * number_bytes(sums_.from)),
        chunk_(sums_.chunk * number_bytes(sums_.from)),
        part_(SharedSegment::kSlotBytes / static_cast<size_t>(world_size() - 1) / kLine * kLine),
        segments_(std::max<size_t>(1, divided(chunk_, part_))),
        parts_(static_cast<size_t>(world_size())) {
    set_missing(others());
  }

 private:
  bool publish() override {
    if (segment().is_in_room(input_)) return pass_in_room(input_, chunk_, others());
    for (; pieces_published_ < segments_; ++pieces_published_) {
      std::byte* slot = free_slot();
      if (slot == nullptr) return false;
      const size_t begin = pieces_published_ * part_;
      for (int to = 0; to < world_size(); ++to) {
        if (to == rank()) continue;
        std::memcpy(slot + place_of(to, rank()), chunk_of(to) + begin, bytes_from(begin));
      }
      pass(slot, bytes_from(begin), others());
    }
    return true;
  }

  RankSet take() override {
    for (; taken_ < segments_; ++taken_) {
      const size_t begin = taken_ * part_;
      RankSet missing = 0;
      RankSet in_use = 0;  // whose piece has the next segment too
      for (int from = 0; from < world_size(); ++from) {
        const void*& part = parts_[static_cast<size_t>(from)].numbers;
        if (from == rank()) {
          part = chunk_of(from) + begin;
          continue;
        }
        const auto piece = next_piece(from, bytes_from(begin), chunk_);
        if (!piece) {
          missing |= only_rank(from);
        } else if (piece->in_room) {
          part = chunk_in(piece->data, rank()) + begin;
          if (taken_ + 1 < segments_) in_use |= only_rank(from);
        } else {
          part = piece->data + place_of(rank(), from);
        }
      }
      if (missing != 0) return missing;
      add(begin);
      for (int from = 0; from < world_size(); ++from) {
        if (((others() & ~in_use) & only_rank(from)) != 0) segment().pop(from);
      }
    }
    return 0;
  }

  void add(size_t begin) {
    const size_t first = begin / number_bytes(sums_.from);
    const size_t count = bytes_from(begin) / number_bytes(sums_.from);
    std::span<const PartialSum> parts = parts_;
    auto* output = static_cast<std::byte*>(sums_.output) + first * number_bytes(sums_.to);
    for (const int ranks : sums_.blocks) {
      const auto of_block = static_cast<size_t>(ranks);
      sum_in_pairs(sums_.from, parts.first(of_block), count, sums_.to, output);
      parts = parts.subspan(of_block);
      output += sums_.chunk * number_bytes(sums_.to);
    }
  }

  const std::byte* chunk_in(const std::byte* input, int rank) const {
    return input + static_cast<size_t>(rank) * stride_;
  }
  const std::byte* chunk_of(int rank) const { return chunk_in(input_, rank); }
  // The size of the segment that begins there.
  size_t bytes_from(size_t begin) const { return std::min(part_, chunk_ - begin); }
  // Where the part of `to` lies in a slot of `from`, which has none for itself.
  size_t place_of(int to, int from) const {
    return static_cast<size_t>(to < from ? to : to - 1) * part_;
  }

  Sums sums_;
  const std::byte* input_;
  size_t stride_;  // bytes, as the next two
  size_t chunk_;
  size_t part_;  // of one rank in a segment
  size_t segments_;
  size_t taken_ = 0;
  std::vector<PartialSum> parts_;  // of the segment that is being added, by rank
};

class SharedMemoryCommunicator::Exchange final : public Work {
 public:
  Exchange(SharedMemoryCommunicator& owner, uint64_t sequence, int to,
           std::span<const std::byte> outgoing, int from, std::span<std::byte> incoming)
      : Work(owner, "exchange", sequence),
        to_(to),
        outgoing_(outgoing),
        from_(from),
        incoming_(incoming) {
    if (!incoming_.empty()) set_missing(only_rank(from_));
  }

 private:
  bool publish() override {
    if (outgoing_.empty()) return true;
    if (segment().is_in_room(outgoing_.data())) {
      return pass_in_room(outgoing_.data(), outgoing_.size(), only_rank(to_));
    }
    return publish_from(outgoing_.data(), outgoing_.size(), only_rank(to_));
  }
  RankSet take() override {
    return take_into(incoming_.data(), incoming_.size(), from_, taken_) ? 0 : only_rank(from_);
  }

  int to_;
  std::span<const std::byte> outgoing_;
  int from_;
  std::span<std::byte> incoming_;
  size_t taken_ = 0;
};

SharedMemoryCommunicator::SharedMemoryCommunicator(const CommunicatorOptions& options,
                                                   std::unique_ptr<NodePeers> peers,
                                                   std::vector<std::string> addresses,
                                                   int first_rank)
    : Communicator(options),
      options_(options),
      addresses_(std::move(addresses)),
      first_rank_(first_rank),
      others_((only_rank(world_size()) - 1) & ~only_rank(rank())),
      peers_(std::move(peers)) {
  HP_CHECK(world_size() >= 2 && world_size() <= SharedSegment::kMostRanks);
}

Outcome SharedMemoryCommunicator::connect() {
  const auto in_words = [this](const Error& error) {
    return Error{kPeerLost, "collective 0 (rendezvous) of rank " + std::to_string(rank()) +
                                " failed: " + error.message};
  };
  UniqueFd file;
  if (rank() == 0) {
    Result<UniqueFd> made = SharedSegment::create(world_size());
    if (!made.ok()) return in_words(made.error());
    file = std::move(*made);
  }
  const auto deadline = Clock::now() + options_.rendezvous_timeout;
  Result<UniqueFd> shared =
      peers_->meet(rank(), addresses_, std::move(file), deadline, first_rank_);
  if (!shared.ok()) return in_words(shared.error());
  Result<std::shared_ptr<std::byte>> mapped = options_.map_segment
                                                  ? options_.map_segment(*shared, world_size())
                                                  : SharedSegment::map(*shared, world_size());
  if (!mapped.ok()) return in_words(mapped.error());
  {
    const std::lock_guard lock(mutex_);
    segment_.emplace(std::move(*mapped), rank(), world_size());
  }
  const Outcome watched = peers_->watch([this] { segment_->wake(); });
  if (!watched.ok()) return in_words(watched.error());
  if (options_.siblings) options_.siblings->add(this);
  return hear_from_all();
}

SharedMemoryCommunicator::~SharedMemoryCommunicator() {
  if (options_.siblings) options_.siblings->remove(this);
}

template <typename Kind, typename... Arguments>
CollectivePtr SharedMemoryCommunicator::begin(Arguments&&... arguments) {
  auto made = std::make_unique<Kind>(*this, next_sequence(), std::forward<Arguments>(arguments)...);
  if (broken_.empty()) progress();
  return made;
}

Result<CollectivePtr> SharedMemoryCommunicator::begin_all_gather(void* buffer, size_t chunk_bytes) {
  return begin_strided_gather(static_cast<std::byte*>(buffer), chunk_bytes, chunk_bytes);
}

CollectivePtr SharedMemoryCommunicator::begin_strided_gather(std::byte* buffer, size_t stride,
                                                             size_t chunk_bytes) {
  return begin<AllGather>(buffer, stride, chunk_bytes);
}

Result<CollectivePtr> SharedMemoryCommunicator::begin_sums(NumberType type, const void* input,
                                                           size_t chunk, void* output) {
  return begin<ReduceScatter>(Sums{type, input, chunk, chunk, {world_size()}, type, output});
}

CollectivePtr SharedMemoryCommunicator::begin_block_sums(NumberType type, const void* input,
                                                         size_t stride, size_t chunk,
                                                         std::vector<int> blocks, void* output) {
  return begin<ReduceScatter>(
      Sums{type, input, stride, chunk, std::move(blocks), sum_type(type), output});
}

Result<CollectivePtr> SharedMemoryCommunicator::begin_exchange(int to,
                                                               std::span<const std::byte> outgoing,
                                                               int from,
                                                               std::span<std::byte> incoming) {
  return begin<Exchange>(to, outgoing, from, incoming);
}

bool SharedMemoryCommunicator::advance() {
  if (aborted_ || !broken_.empty()) return false;
  progress();
  return !begun_.empty();
}

// In order: what is behind a collective that has not published all has nothing to publish, and what
// may not begin yet is not overtaken.
void SharedMemoryCommunicator::progress() {
  bool has_room = true;
  for (auto it = begun_.begin(); it != begun_.end();) {
    Work& work = **it;
    if (work.due() != Clock::time_point{} && work.due() > Clock::now()) return;
    if (has_room && !work.is_published()) work.publish_what_fits();
    has_room = work.is_published();
    work.take_what_has_come();
    it = work.is_done() ? begun_.erase(it) : it + 1;
  }
}

// Null = all.
SharedMemoryCommunicator::Needs SharedMemoryCommunicator::needs_until(const Work* last) const {
  Needs needs;
  for (const Work* work : begun_) {
    if (work->due() != Clock::time_point{} && work->due() > Clock::now()) {
      needs.due = work->due();
      break;
    }
    if (!work->is_published()) needs.readers = segment_->readers();
    needs.pieces |= work->missing();
    if (work == last) break;
  }
  return needs;
}

// "rank 1", "rank 1, rank 3"
std::string SharedMemoryCommunicator::names_of(RankSet ranks) const {
  std::vector<std::string> names;
  for (int r = 0; r < world_size(); ++r) {
    if ((ranks & only_rank(r)) == 0) continue;
    names.push_back("rank " + std::to_string(first_rank_ + r));
  }
  return join(names, ", ");
}

Error SharedMemoryCommunicator::failed(const std::string& what, const std::string& why) const {
  return Error{kPeerLost,
               "collective " + what + " of rank " + std::to_string(rank()) + " failed: " + why};
}

Outcome SharedMemoryCommunicator::wait(const Work& work) {
  HP_TRY(work_until(
      std::to_string(work.sequence()) + " (" + work.what() + ")",
      [&work] { return work.is_done(); }, [this, &work] { return needs_until(&work); }));
  note_completed();
  return Ok{};
}

// Others may wait for pieces that we have yet to publish, so all that was begun goes on meanwhile.
Outcome SharedMemoryCommunicator::await_readers(std::span<const std::byte> shared) {
  return work_until(
      "0 (readers of a buffer)", [&] { return segment_->readers_of(shared) == 0; },
      [&] {
        Needs needs = needs_until(nullptr);
        needs.readers |= segment_->readers_of(shared);
        return needs;
      });
}

template <typename IsDone, typename FindNeeds>
Outcome SharedMemoryCommunicator::work_until(const std::string& what, IsDone is_done,
                                             FindNeeds find_needs) {
  const auto deadline = Clock::now() + patience();
  const Waiting waiting(*this);
  for (;;) {
    if (aborted_) broken_ = "aborted";
    // Both before we look: what changes afterwards is seen next time, and ends the wait.
    const uint32_t heard = segment_->bell();
    const RankSet lost = peers_->lost();
    if (broken_.empty()) progress();
    if (is_done() && !aborted_) return Ok{};
    if (!broken_.empty()) return failed(what, broken_);
    const Needs needs = find_needs();
    const RankSet gone = (needs.pieces | needs.readers) & lost;
    if (gone != 0) {
      broken_ = "connection to " + names_of(gone) + " closed";
    } else if (Clock::now() >= deadline) {
      const std::string whom = names_of(needs.pieces | needs.readers);
      broken_ = "timed out after " + std::to_string(patience().count()) + " ms" +
                (whom.empty() ? "" : "; it waited for " + whom);
    } else {
      const RankSet wanted = needs.pieces | (needs.readers != 0 ? SharedSegment::kForSlot : 0);
      auto until = std::min(deadline, needs.due);
      if (options_.siblings && options_.siblings->advance_others(this)) {
        until = std::min(until, Clock::now() + kLookAtSiblings);
      }
      segment_->wait(heard, wanted, until);
    }
  }
}

SharedMemoryCommunicator::Clock::time_point SharedMemoryCommunicator::due_of_next() const {
  if (is_silent_) return Clock::time_point::max();
  const auto now = Clock::now();
  if (now >= delays_until_) return {};
  return now + std::chrono::milliseconds(kCollectiveDelayMs);
}

Outcome SharedMemoryCommunicator::suffer(PeerTrouble trouble) {
  switch (trouble) {
    case PeerTrouble::kLate:
      delays_until_ = Clock::now() + std::chrono::milliseconds(kDelaysLastMs);
      break;
    case PeerTrouble::kSilent:
      is_silent_ = true;
      break;
    case PeerTrouble::kCut:
      // The memory would still be there.
      broken_ = "its connections were cut";
      peers_->cut();
      break;
  }
  return Ok{};
}

void SharedMemoryCommunicator::abort() {
  aborted_ = true;
  peers_->abort();
  const std::lock_guard lock(mutex_);
  if (segment_) segment_->wake();
}

}  // namespace hpctl
