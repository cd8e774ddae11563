// SPDX-License-Identifier: Apache-2.0
#include "common/worker/worker_control.h"

#include "common/worker/packet_variant.h"

namespace hpctl::control {

// The index of a type in the variant is its kind on the wire; fields in the order of the struct.
static void put(PacketWriter& w, const Join& m) { w.number(m.generation); }
static void get(PacketReader& r, Join& m) { r.into(m.generation); }

static void put(PacketWriter& w, const Abort& m) { w.number(m.generation); }
static void get(PacketReader& r, Abort& m) { r.into(m.generation); }

static void put(PacketWriter&, const Finish&) {}
static void get(PacketReader&, Finish&) {}

static void put(PacketWriter& w, const Take& m) { w.number(m.descriptor); }
static void get(PacketReader& r, Take& m) { r.into(m.descriptor); }

static void put(PacketWriter& w, const Suffer& m) { w.number(m.generation).text(m.fault); }
static void get(PacketReader& r, Suffer& m) {
  r.into(m.generation);
  m.fault = r.text();
}

static void put(PacketWriter& w, const Ping& m) { w.number(m.number); }
static void get(PacketReader& r, Ping& m) { r.into(m.number); }

static void put(PacketWriter&, const Ready&) {}
static void get(PacketReader&, Ready&) {}

static void put(PacketWriter& w, const Joined& m) { w.number(m.generation); }
static void get(PacketReader& r, Joined& m) { r.into(m.generation); }

static void put(PacketWriter& w, const Aborted& m) { w.number(m.generation); }
static void get(PacketReader& r, Aborted& m) { r.into(m.generation); }

static void put(PacketWriter& w, const Pong& m) { w.number(m.number); }
static void get(PacketReader& r, Pong& m) { r.into(m.number); }

static void put(PacketWriter& w, const PeerLost& m) { w.number(m.generation); }
static void get(PacketReader& r, PeerLost& m) { r.into(m.generation); }

std::string encode(const ToWorker& message) { return encode_packet(message); }
std::string encode(const FromWorker& message) { return encode_packet(message); }

Result<ToWorker> decode_to_worker(std::string_view packet) {
  return decode_packet<ToWorker>(packet, "to a worker");
}
Result<FromWorker> decode_from_worker(std::string_view packet) {
  return decode_packet<FromWorker>(packet, "from a worker");
}

}  // namespace hpctl::control
