// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/reshard.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "common/base/checksum.h"
#include "common/layout/reshard_plan.h"
#include "common/worker/seal_packet.h"

namespace hpctl {

namespace {

constexpr size_t kMessageBytes = size_t{16} << 20;

// A part that a rank has, as it tells the others.
struct Offer {
  int32_t rank = 0;
  int32_t part = 0;
  int32_t slot = 0;  // of that rank's arena
  Seal seal;
  std::string notes;
};

// Which rank sends which elements, of all three kinds, to which.
struct Piece {
  int32_t from = 0;
  int32_t to = 0;
  ReshardPiece elements;
};

std::string tell_offers(const StateArena* former, int32_t former_parts, uint64_t step) {
  std::vector<int32_t> slots;
  if (former != nullptr && former->geometry().shard_count == former_parts) {
    for (int slot = 0; slot < former->geometry().all_slots(); ++slot) {
      if (former->is_sealed(slot) && former->seal_of(slot).step == step) slots.push_back(slot);
    }
  }
  PacketWriter w;
  w.number(static_cast<uint32_t>(slots.size()));
  for (const int32_t slot : slots) {
    const ArenaGeometry& geometry = former->geometry();
    w.number(slot < geometry.slots ? geometry.shard_index : geometry.copied_index).number(slot);
    write_seal(w, former->seal_of(slot)).text(former->notes(slot));
  }
  return w.take();
}

Result<std::vector<Offer>> read_offers(const std::vector<std::string>& said) {
  std::vector<Offer> offers;
  for (size_t rank = 0; rank < said.size(); ++rank) {
    PacketReader r(said[rank]);
    const size_t count = std::min<size_t>(r.number<uint32_t>(), kArenaSlots);
    for (size_t i = 0; i < count; ++i) {
      Offer& offer = offers.emplace_back();
      offer.rank = static_cast<int32_t>(rank);
      r.into(offer.part);
      r.into(offer.slot);
      offer.seal = read_seal(r);
      offer.notes = r.text();
    }
    if (!r.finished()) {
      return Error{ErrorCode::kDataLoss,
                   "what rank " + std::to_string(rank) + " says that it has in memory is damaged"};
    }
  }
  return offers;
}

// The holders of each part of one state.
struct Sources {
  std::vector<std::vector<const Offer*>> by_part;

  const Offer& of(int32_t part, int32_t for_rank) const {
    const auto& holders = by_part[static_cast<size_t>(part)];
    for (const Offer* holder : holders) {
      if (holder->rank == for_rank) return *holder;
    }
    return *holders[static_cast<size_t>(for_rank) % holders.size()];
  }
};

// For the complete state; of two, the one that was sealed last.
Result<Sources> find_sources(const std::vector<Offer>& offers, int32_t parts, uint64_t step) {
  std::map<std::pair<uint64_t, uint64_t>, Sources> states;  // by generation and digest
  for (const Offer& offer : offers) {
    if (offer.part < 0 || offer.part >= parts) continue;
    Sources& sources = states[{offer.seal.generation, offer.seal.digest}];
    sources.by_part.resize(static_cast<size_t>(parts));
    sources.by_part[static_cast<size_t>(offer.part)].push_back(&offer);
  }
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    const auto& by_part = state->second.by_part;
    const bool whole = std::none_of(by_part.begin(), by_part.end(),
                                    [](const auto& holders) { return holders.empty(); });
    if (whole) return std::move(state->second);
  }
  return Error{ErrorCode::kDataLoss, "step " + std::to_string(step) +
                                         " is not whole in the ranks' memory: not all of its " +
                                         std::to_string(parts) +
                                         " parts are there; start from a checkpoint"};
}

std::vector<Piece> plan_pieces(const CutModel& model, const Mesh& former_mesh, const Mesh& mesh,
                               const Sources& sources) {
  std::vector<Piece> pieces;
  const ReshardPlan plan(model, former_mesh, mesh);
  for (int32_t to = 0; to < mesh.world_size(); ++to) {
    for (const ReshardPiece& elements : plan.pieces_of(mesh.part(to))) {
      pieces.push_back({sources.of(elements.from_part, to).rank, to, elements});
    }
  }
  return pieces;
}

// Bytes of several places, concatenated.
class Segments {
 public:
  void add(std::span<std::byte> bytes) {
    segments_.push_back(bytes);
    starts_.push_back(size_);
    size_ += bytes.size();
  }
  size_t size() const { return size_; }
  void read(size_t begin, std::span<std::byte> into) const {
    each(begin, into.size(), [&](std::span<std::byte> here, size_t at) {
      std::memcpy(into.data() + at, here.data(), here.size());
    });
  }
  void write(size_t begin, std::span<const std::byte> from) const {
    each(begin, from.size(), [&](std::span<std::byte> here, size_t at) {
      std::memcpy(here.data(), from.data() + at, here.size());
    });
  }

 private:
  // use(bytes of a segment, where they are among those asked for)
  template <typename Use>
  void each(size_t begin, size_t count, const Use& use) const {
    const auto behind = std::upper_bound(starts_.begin(), starts_.end(), begin);
    auto at = static_cast<size_t>(behind - starts_.begin());
    for (at -= at > 0 ? 1 : 0; at < segments_.size() && starts_[at] < begin + count; ++at) {
      const std::span<std::byte> segment = segments_[at];
      const size_t first = std::max(begin, starts_[at]);
      const size_t last = std::min(begin + count, starts_[at] + segment.size());
      if (first < last) use(segment.subspan(first - starts_[at], last - first), first - begin);
    }
  }

  std::vector<std::span<std::byte>> segments_;
  std::vector<size_t> starts_;  // of each segment
  size_t size_ = 0;
};

// `runs` as they lie in the arena: those of `piece` on this side.
void add_piece(Segments& segments, StateArena& arena, int slot, const ReshardPiece& piece,
               const ElementRuns& runs) {
  for (const StateKind kind : kStateKinds) {
    const size_t bytes = static_cast<size_t>(piece.count) * arena.element_bytes(kind);
    for (int64_t run = 0; run < piece.runs; ++run) {
      segments.add({arena.bytes_at(slot, kind, static_cast<size_t>(runs.block),
                                   runs.first + run * runs.stride),
                    bytes});
    }
  }
}

// The messages of one distance. False when one arrived damaged.
class Sender {
 public:
  explicit Sender(Communicator& world) : world_(world) {}

  // All ranks make as many messages as the most that one of them sends has bytes for.
  Result<bool> send(int32_t distance, const Segments& outgoing, const Segments& incoming,
                    size_t most) {
    const int32_t ranks = world_.world_size();
    const int32_t to = (world_.rank() + distance) % ranks;
    const int32_t from = (world_.rank() - distance + ranks) % ranks;
    bool intact = true;
    for (size_t begin = 0; begin < most; begin += kMessageBytes) {
      const std::span<std::byte> sent = message(out_, outgoing, begin);
      const std::span<std::byte> received = message(in_, incoming, begin);
      if (!sent.empty()) {
        const auto bytes = sent.first(sent.size() - sizeof(uint32_t));
        outgoing.read(begin, bytes);
        const uint32_t crc = crc32c(bytes.data(), bytes.size());
        std::memcpy(sent.data() + bytes.size(), &crc, sizeof crc);
      }
      HP_TRY_ASSIGN(const CollectivePtr under_way, world_.begin_exchange(to, sent, from, received));
      HP_TRY(under_way->wait());
      if (received.empty()) continue;
      const auto bytes = received.first(received.size() - sizeof(uint32_t));
      uint32_t crc = 0;
      std::memcpy(&crc, received.data() + bytes.size(), sizeof crc);
      intact = intact && crc == crc32c(bytes.data(), bytes.size());
      incoming.write(begin, bytes);
    }
    return intact;
  }

 private:
  // With room for its checksum; empty where nothing is left.
  static std::span<std::byte> message(std::vector<std::byte>& buffer, const Segments& segments,
                                      size_t begin) {
    if (begin >= segments.size()) return {};
    buffer.resize(std::min(kMessageBytes, segments.size() - begin) + sizeof(uint32_t));
    return buffer;
  }

  Communicator& world_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
};

// The data that this rank sends and receives over one distance, and the most that any rank sends
// over it.
struct Leg {
  Segments outgoing;
  Segments incoming;
  size_t most = 0;
};

// By distance. `rank` is this one; `former` and `made` are its arenas.
std::map<int32_t, Leg> plan_legs(const std::vector<Piece>& pieces, const Sources& sources,
                                 int32_t rank, int32_t ranks, StateArena* former,
                                 StateArena& made) {
  const ArenaGeometry& geometry = made.geometry();
  const size_t each = geometry.slot_bytes() / static_cast<size_t>(geometry.shard_elements());
  std::map<int32_t, Leg> legs;
  std::map<std::pair<int32_t, int32_t>, size_t> sent;  // by distance and sender
  for (const Piece& piece : pieces) {
    const int32_t distance = (piece.to - piece.from + ranks) % ranks;
    Leg& leg = legs[distance];
    size_t& bytes = sent[{distance, piece.from}];
    bytes += static_cast<size_t>(piece.elements.elements()) * each;
    leg.most = std::max(leg.most, bytes);
    if (piece.from == rank) {
      add_piece(leg.outgoing, *former, sources.of(piece.elements.from_part, piece.to).slot,
                piece.elements, piece.elements.from);
    }
    if (piece.to == rank) {
      add_piece(leg.incoming, made, 0, piece.elements, piece.elements.to);
    }
  }
  return legs;
}

void copy_here(const Leg& leg) {
  std::vector<std::byte> bytes(std::min(kMessageBytes, leg.outgoing.size()));
  for (size_t begin = 0; begin < leg.outgoing.size(); begin += kMessageBytes) {
    const auto here = std::span(bytes).first(std::min(bytes.size(), leg.outgoing.size() - begin));
    leg.outgoing.read(begin, here);
    leg.incoming.write(begin, here);
  }
}

}  // namespace

Result<NewPart> reshard(Communicator& world, StateArena* former, const Mesh& former_mesh,
                        uint64_t step, const CutModel& model, const Mesh& mesh,
                        const ArenaGeometry& geometry) {
  const int32_t former_parts = former_mesh.parts();
  HP_TRY_ASSIGN(const auto said, world.all_gather_text(tell_offers(former, former_parts, step)));
  HP_TRY_ASSIGN(const std::vector<Offer> offers, read_offers(said));
  HP_TRY_ASSIGN(const Sources sources, find_sources(offers, former_parts, step));
  ArenaGeometry of_one_slot = geometry;
  of_one_slot.slots = 1;
  of_one_slot.copies = 0;
  HP_TRY_ASSIGN(StateArena made, StateArena::create(-1, of_one_slot));

  const std::vector<Piece> pieces = plan_pieces(model, former_mesh, mesh, sources);
  Sender sender(world);
  double damaged = 0;
  for (const auto& [distance, leg] :
       plan_legs(pieces, sources, world.rank(), world.world_size(), former, made)) {
    if (distance == 0) {
      copy_here(leg);
      continue;
    }
    HP_TRY_ASSIGN(const bool intact, sender.send(distance, leg.outgoing, leg.incoming, leg.most));
    damaged += intact ? 0 : 1;
  }
  // After this no rank needs the others' former parts.
  HP_TRY(world.all_reduce(std::span(&damaged, 1)));
  if (damaged > 0) {
    return Error{ErrorCode::kDataLoss, "parts of step " + std::to_string(step) +
                                           " arrived damaged from another rank's memory; start "
                                           "from a checkpoint"};
  }
  const Offer& source = sources.of(0, 0);
  return NewPart{std::move(made), source.seal, source.notes};
}

}  // namespace hpctl
