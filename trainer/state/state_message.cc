// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/state_message.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/checksum.h"
#include "common/worker/seal_packet.h"

namespace hpctl {

namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;

// Seal and notes, padded, before a checksum of both.
size_t head_bytes(const StateArena& arena) { return arena.geometry().notes_bytes + 64; }

uint32_t checksum_of(std::span<const std::byte> bytes) {
  return crc32c(bytes.data(), bytes.size());
}

std::span<std::byte> piece(std::span<std::byte> state, size_t number) {
  const size_t begin = number * kPieceBytes;
  return state.subspan(begin, std::min(kPieceBytes, state.size() - begin));
}

std::string make_head(const StateArena& arena, int slot) {
  PacketWriter w;
  std::string head = write_seal(w, arena.seal_of(slot)).text(arena.notes(slot)).take();
  head.resize(head_bytes(arena));
  return head + PacketWriter().number(crc32c(head.data(), head.size())).take();
}

struct Head {
  Seal seal;
  std::string notes;
};

// nullopt where it is damaged.
std::optional<Head> read_head(std::string_view bytes) {
  const std::string_view head = bytes.substr(0, bytes.size() - sizeof(uint32_t));
  if (PacketReader(bytes.substr(head.size())).number<uint32_t>() !=
      crc32c(head.data(), head.size())) {
    return std::nullopt;
  }
  PacketReader r(head);
  Head read;
  read.seal = read_seal(r);
  read.notes = r.text();
  return read;
}

// The two ranks, and whether there is something for them and of them.
class Exchange {
 public:
  Exchange(Communicator& ring, int to, bool sends, int from, bool receives)
      : ring_(ring), to_(to), sends_(sends), from_(from), receives_(receives) {}

  Result<CollectivePtr> begin(std::span<const std::byte> outgoing, std::span<std::byte> incoming) {
    return ring_.begin_exchange(to_, sends_ ? outgoing : std::span<const std::byte>(), from_,
                                receives_ ? incoming : std::span<std::byte>());
  }
  // With equally many elements on both sides.
  template <typename T>
  Outcome run(std::span<const T> outgoing, std::span<T> incoming) {
    HP_TRY_ASSIGN(const CollectivePtr under_way,
                  begin(std::as_bytes(outgoing), std::as_writable_bytes(incoming)));
    return under_way->wait();
  }
  bool sends() const { return sends_; }
  bool receives() const { return receives_; }

 private:
  Communicator& ring_;
  int to_;
  bool sends_;
  int from_;
  bool receives_;
};

// While a piece travels the checksum of the one before is computed. True when all are intact.
// `outgoing` and `incoming` are of one size, or not used.
Result<bool> exchange_pieces(Exchange& peers, std::span<std::byte> outgoing,
                             std::span<std::byte> incoming) {
  const size_t pieces = (outgoing.size() + kPieceBytes - 1) / kPieceBytes;
  std::vector<uint32_t> sent(pieces);
  std::vector<uint32_t> said(pieces);
  std::vector<uint32_t> received(pieces);
  for (size_t i = 0; i <= pieces; ++i) {
    CollectivePtr under_way;
    if (i < pieces) {
      HP_TRY_ASSIGN(under_way, peers.begin(piece(outgoing, i), piece(incoming, i)));
      if (peers.sends()) sent[i] = checksum_of(piece(outgoing, i));
    }
    if (i > 0 && peers.receives()) received[i - 1] = checksum_of(piece(incoming, i - 1));
    if (under_way) HP_TRY(under_way->wait());
  }
  HP_TRY(peers.run(std::span<const uint32_t>(sent), std::span(said)));
  return !peers.receives() || said == received;
}

}  // namespace

Result<bool> exchange_states(Communicator& ring, StateArena& arena, int to_rank, int from,
                             int from_rank, int into) {
  Exchange peers(ring, to_rank, from != kNoSlot, from_rank, into != kNoSlot);
  std::string head(head_bytes(arena) + sizeof(uint32_t), '\0');
  std::string head_taken = head;
  if (peers.sends()) head = make_head(arena, from);
  if (peers.receives()) arena.unseal(into);
  HP_TRY(peers.run(std::span<const char>(head), std::span(head_taken)));
  // Where there is nothing to send, or to receive, any slot stands for its size.
  const auto outgoing = arena.slot_bytes(std::max(0, from));
  const auto incoming = arena.slot_bytes(std::max(0, into));
  HP_TRY_ASSIGN(const bool intact, exchange_pieces(peers, outgoing, incoming));
  if (!peers.receives()) return true;
  const std::optional<Head> read = read_head(head_taken);
  if (!intact || !read) return false;
  return arena.seal(into, read->seal, read->notes);
}

}  // namespace hpctl
