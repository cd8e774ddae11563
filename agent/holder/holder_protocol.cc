// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/holder_protocol.h"

#include <algorithm>

#include "common/job/hang_rule.h"
#include "common/worker/packet_variant.h"
#include "common/worker/seal_packet.h"
#include "common/worker/worker_abi.h"

namespace hpctl::holder {

// The index of a type in the variant is its kind on the wire; each pair below lists the fields once
// for writing and once for reading, in the order of the struct.
static void put(PacketWriter& w, const AcceptGeneration& m) { w.number(m.generation); }
static void get(PacketReader& r, AcceptGeneration& m) { r.into(m.generation); }

static void put(PacketWriter& w, const Spawn& m) {
  w.number(m.generation).number(m.rank).number(m.local_rank).texts(m.argv).texts(m.env);
  w.text(m.directory).text(m.log_path).text(m.workload).number(m.python);
  w.texts(m.hang_patterns);
}
static void get(PacketReader& r, Spawn& m) {
  r.into(m.generation);
  r.into(m.rank);
  r.into(m.local_rank);
  m.argv = r.texts();
  m.env = r.texts();
  m.directory = r.text();
  m.log_path = r.text();
  m.workload = r.text();
  r.into(m.python);
  m.hang_patterns = r.texts();
}

static void put(PacketWriter& w, const Kill& m) {
  w.number(m.generation).number(m.grace_ms).number(m.abort_ms).number(m.stacks);
}
static void get(PacketReader& r, Kill& m) {
  r.into(m.generation);
  r.into(m.grace_ms);
  r.into(m.abort_ms);
  r.into(m.stacks);
}

static void put(PacketWriter& w, const KeepReport& m) {
  w.number(m.seq).number(m.covers_exit).number(m.committed_generation).number(m.committed_step);
  w.number(m.bad_step_generation).number(m.bad_step_number).text(m.bytes);
}
static void get(PacketReader& r, KeepReport& m) {
  r.into(m.seq);
  r.into(m.covers_exit);
  r.into(m.committed_generation);
  r.into(m.committed_step);
  r.into(m.bad_step_generation);
  r.into(m.bad_step_number);
  m.bytes = r.text();
}

static void put(PacketWriter& w, const DropReport& m) { w.number(m.seq); }
static void get(PacketReader& r, DropReport& m) { r.into(m.seq); }

static void put(PacketWriter& w, const End& m) {
  w.number(m.exit_code).number(m.grace_ms).text(m.reason);
}
static void get(PacketReader& r, End& m) {
  r.into(m.exit_code);
  r.into(m.grace_ms);
  m.reason = r.text();
}

static void put(PacketWriter& w, const Alive& m) { w.number(m.next_within_ms); }
static void get(PacketReader& r, Alive& m) { r.into(m.next_within_ms); }

static void put(PacketWriter& w, const Strike& m) { w.number(m.incarnation).text(m.fault); }
static void get(PacketReader& r, Strike& m) {
  r.into(m.incarnation);
  m.fault = r.text();
}

static void put(PacketWriter& w, const Hello& m) {
  w.number(m.version).text(m.boot_id).number(m.holder_pid).number(m.generation_seen);
  w.number(m.ended_through).number(m.last_report);
  w.number(m.committed_generation).number(m.committed_step);
  w.number(m.bad_step_generation).number(m.bad_step_number).number(m.probe_port);
}
static void get(PacketReader& r, Hello& m) {
  r.into(m.version);
  m.boot_id = r.text();
  r.into(m.holder_pid);
  r.into(m.generation_seen);
  r.into(m.ended_through);
  r.into(m.last_report);
  r.into(m.committed_generation);
  r.into(m.committed_step);
  r.into(m.bad_step_generation);
  r.into(m.bad_step_number);
  r.into(m.probe_port);
}

static void put(PacketWriter& w, const WorkerState& m) {
  w.number(m.incarnation).number(m.generation).number(m.rank).number(m.local_rank);
  w.number(m.pid).number(static_cast<uint8_t>(m.part)).number(m.is_ready);
  w.number(static_cast<uint8_t>(m.origin));
}
static void get(PacketReader& r, WorkerState& m) {
  r.into(m.incarnation);
  r.into(m.generation);
  r.into(m.rank);
  r.into(m.local_rank);
  r.into(m.pid);
  r.into(m.part, WorkerPart::kEnded, WorkerPart::kIdle);
  r.into(m.is_ready);
  m.origin = known_origin(r.number<uint8_t>());
}

static void put(PacketWriter& w, const SpawnFailed& m) {
  w.number(m.generation).number(m.rank).number(m.permanent).text(m.reason);
}
static void get(PacketReader& r, SpawnFailed& m) {
  r.into(m.generation);
  r.into(m.rank);
  r.into(m.permanent);
  m.reason = r.text();
}

static void put(PacketWriter& w, const BadStep& m) {
  w.number(m.number).number(m.step).number(m.resumed_step).number(m.samples);
  w.number(static_cast<uint32_t>(m.finding)).number(static_cast<uint32_t>(m.verdict));
  w.number(static_cast<uint32_t>(m.outcome)).number(m.blamed_rank).text(m.reason);
}
static void get(PacketReader& r, BadStep& m) {
  r.into(m.number);
  r.into(m.step);
  r.into(m.resumed_step);
  r.into(m.samples);
  r.into(m.finding, BadStepFinding::kNotFinite, BadStepFinding::kGradientSpike);
  r.into(m.verdict, BadStepVerdict::kNotRepeated, BadStepVerdict::kOtherResult);
  r.into(m.outcome, BadStepOutcome::kSkipped, BadStepOutcome::kGaveUp);
  r.into(m.blamed_rank);
  m.reason = r.text();
}

static void put(PacketWriter& w, const std::vector<Seal>& seals) {
  w.number(static_cast<uint32_t>(seals.size()));
  for (const Seal& seal : seals) write_seal(w, seal);
}
static void get(PacketReader& r, std::vector<Seal>& seals) {
  seals.resize(std::min<size_t>(r.number<uint32_t>(), kArenaSlots));
  for (Seal& seal : seals) seal = read_seal(r);
}

static void put(PacketWriter& w, const Exited& m) {
  w.number(m.exit_id).number(m.incarnation).number(m.generation).number(m.rank).number(m.pid);
  w.number(m.exit_code)
      .number(m.signal)
      .number(m.last_step)
      .number(m.checkpoint_step)
      .number(m.by_request)
      .number(m.stays);
  w.text(m.message).number(static_cast<uint32_t>(m.bad_step.size()));
  for (const BadStep& bad_step : m.bad_step) put(w, bad_step);
  put(w, m.seals.own);
  put(w, m.seals.copies);
  w.number(m.seals.part).number(m.seals.parts).number(m.seals.copied_part);
  w.text(m.fault.file).number(m.fault.offset).number(m.fault.bytes).number(m.fault.error);
}
static void get(PacketReader& r, Exited& m) {
  r.into(m.exit_id);
  r.into(m.incarnation);
  r.into(m.generation);
  r.into(m.rank);
  r.into(m.pid);
  r.into(m.exit_code);
  r.into(m.signal);
  r.into(m.last_step);
  r.into(m.checkpoint_step);
  r.into(m.by_request);
  r.into(m.stays);
  m.message = r.text();
  // Never more than the page has slots; a damaged count reads past the end and is refused.
  m.bad_step.resize(std::min<size_t>(r.number<uint32_t>(), kBadStepSlots));
  for (BadStep& bad_step : m.bad_step) get(r, bad_step);
  get(r, m.seals.own);
  get(r, m.seals.copies);
  r.into(m.seals.part);
  r.into(m.seals.parts);
  r.into(m.seals.copied_part);
  m.fault.file = r.text();
  r.into(m.fault.offset);
  r.into(m.fault.bytes);
  r.into(m.fault.error);
}

static void put(PacketWriter& w, const StoredReport& m) { w.number(m.seq).text(m.bytes); }
static void get(PacketReader& r, StoredReport& m) {
  r.into(m.seq);
  m.bytes = r.text();
}

static void put(PacketWriter&, const HelloEnd&) {}
static void get(PacketReader&, HelloEnd&) {}

void put(PacketWriter&, const AliveToo&) {}
void get(PacketReader&, AliveToo&) {}

static void put(PacketWriter& w, const ToldToEnd& m) { w.text(m.reason); }
static void get(PacketReader& r, ToldToEnd& m) { m.reason = r.text(); }

static void put(PacketWriter& w, const StacksTaken& m) { w.number(m.generation).text(m.told); }
static void get(PacketReader& r, StacksTaken& m) {
  r.into(m.generation);
  m.told = r.text();
}

static void put(PacketWriter& w, const LogMatches& m) {
  w.number(m.incarnation).number(static_cast<uint32_t>(m.matched_ms.size()));
  for (const int64_t ms : m.matched_ms) w.number(ms);
}
static void get(PacketReader& r, LogMatches& m) {
  r.into(m.incarnation);
  m.matched_ms.resize(std::min<size_t>(r.number<uint32_t>(), kMostHangRules));
  for (int64_t& ms : m.matched_ms) r.into(ms);
}

std::string encode(const ToHolder& message) { return encode_packet(message); }
std::string encode(const ToAgent& message) { return encode_packet(message); }

Result<ToHolder> decode_to_holder(std::string_view packet) {
  return decode_packet<ToHolder>(packet, "between holder and agent");
}
Result<ToAgent> decode_to_agent(std::string_view packet) {
  return decode_packet<ToAgent>(packet, "between holder and agent");
}

}  // namespace hpctl::holder
