// SPDX-License-Identifier: Apache-2.0
#include "common/worker/step_protocol.h"

#include "common/worker/packet_variant.h"

namespace hpctl::step {

static void put(PacketWriter& w, const Hello& m) {
  w.number(m.version).number(m.task).number(m.tasks).text(m.node);
  w.number(m.pid).text(m.address).number(m.free_port);
}
static void get(PacketReader& r, Hello& m) {
  r.into(m.version);
  r.into(m.task);
  r.into(m.tasks);
  m.node = r.text();
  r.into(m.pid);
  m.address = r.text();
  r.into(m.free_port);
}

static void put(PacketWriter& w, const Started& m) { w.number(m.generation).number(m.pid); }
static void get(PacketReader& r, Started& m) {
  r.into(m.generation);
  r.into(m.pid);
}

static void put(PacketWriter& w, const StartFailed& m) { w.number(m.generation).text(m.reason); }
static void get(PacketReader& r, StartFailed& m) {
  r.into(m.generation);
  m.reason = r.text();
}

static void put(PacketWriter& w, const Progress& m) {
  w.number(m.generation).number(m.pid).number(m.step).number(m.tokens).number(m.step_ns);
  w.text(m.process_state);
}
static void get(PacketReader& r, Progress& m) {
  r.into(m.generation);
  r.into(m.pid);
  r.into(m.step);
  r.into(m.tokens);
  r.into(m.step_ns);
  m.process_state = r.text();
}

static void put(PacketWriter& w, const Exited& m) {
  w.number(m.generation).number(m.pid).number(m.exit_code).number(m.signal);
}
static void get(PacketReader& r, Exited& m) {
  r.into(m.generation);
  r.into(m.pid);
  r.into(m.exit_code);
  r.into(m.signal);
}

static void put(PacketWriter& w, const Stopped& m) {
  w.number(m.generation).number(m.free_port).text(m.stacks);
}
static void get(PacketReader& r, Stopped& m) {
  r.into(m.generation);
  r.into(m.free_port);
  m.stacks = r.text();
}

static void put(PacketWriter& w, const Ending& m) { w.number(m.signal); }
static void get(PacketReader& r, Ending& m) { r.into(m.signal); }

static void put(PacketWriter&, const Welcome&) {}
static void get(PacketReader&, Welcome&) {}

static void put(PacketWriter& w, const Start& m) {
  w.number(m.generation).number(m.restart_count).number(m.max_restarts).text(m.run_id);
  w.text(m.master_address).number(m.master_port);
}
static void get(PacketReader& r, Start& m) {
  r.into(m.generation);
  r.into(m.restart_count);
  r.into(m.max_restarts);
  m.run_id = r.text();
  m.master_address = r.text();
  r.into(m.master_port);
}

static void put(PacketWriter& w, const Stop& m) {
  w.number(m.generation).number(m.grace_ms).number(m.stacks);
}
static void get(PacketReader& r, Stop& m) {
  r.into(m.generation);
  r.into(m.grace_ms);
  r.into(m.stacks);
}

static void put(PacketWriter& w, const Finish& m) { w.number(m.exit_code).number(m.stacks); }
static void get(PacketReader& r, Finish& m) {
  r.into(m.exit_code);
  r.into(m.stacks);
}

static void put(PacketWriter& w, const Release& m) { w.text(m.reason); }
static void get(PacketReader& r, Release& m) { m.reason = r.text(); }

std::string encode(const ToController& message) { return encode_packet(message); }
std::string encode(const ToShim& message) { return encode_packet(message); }

Result<ToController> decode_to_controller(std::string_view packet) {
  return decode_packet<ToController>(packet, "from a task's shim");
}
Result<ToShim> decode_to_shim(std::string_view packet) {
  return decode_packet<ToShim>(packet, "from the step's controller");
}

}  // namespace hpctl::step
