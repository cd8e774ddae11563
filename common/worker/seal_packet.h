// SPDX-License-Identifier: Apache-2.0
// A seal in a packet: three numbers.
#pragma once

#include <cstddef>

#include "common/net/packet.h"
#include "common/worker/seal.h"

namespace hpctl {

inline constexpr size_t kSealBytes = 3 * sizeof(uint64_t);

inline PacketWriter& write_seal(PacketWriter& w, const Seal& seal) {
  return w.number(seal.step).number(seal.digest).number(seal.generation);
}

inline Seal read_seal(PacketReader& r) {
  Seal seal;
  r.into(seal.step);
  r.into(seal.digest);
  r.into(seal.generation);
  return seal;
}

}  // namespace hpctl
