// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/job_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/base/clock.h"

namespace hpctl {
namespace {

using nlohmann::ordered_json;

std::string dump(const ordered_json& j) {
  return j.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json node_json(const v1::NodeStatus& n) {
  return {{"name", n.name()},          {"role", n.role()},
          {"state", n.state()},        {"instance_id", n.instance_id()},
          {"boot_id", n.boot_id()},    {"holder_pid", n.holder_pid()},
          {"agent_pid", n.agent_pid()}};
}

ordered_json worker_json(const v1::WorkerStatus& w) {
  return {
      {"rank", w.rank()},   {"node", w.node()},   {"pid", w.pid()},  {"generation", w.generation()},
      {"state", w.state()}, {"phase", w.phase()}, {"step", w.step()}};
}

ordered_json event_json(const v1::Event& e) {
  ordered_json j = {{"seq", e.seq()},
                    {"time", format_wall_ms(e.wall_ms())},
                    {"type", e.type()},
                    {"job", e.job()},
                    {"generation", e.generation()},
                    {"node", nullptr},
                    {"rank", nullptr},
                    {"cause", e.cause()},
                    {"because", e.because_seq()},
                    {"wall_ms", e.wall_ms()}};
  if (!e.node().empty()) j["node"] = e.node();
  if (e.rank() >= 0) j["rank"] = e.rank();
  return j;
}

// Reads one field if it is there and of the right type; files of other versions stay readable.
template <typename T, typename Set>
void read(const ordered_json& j, const char* key, const Set& set) {
  const auto it = j.find(key);
  if (it == j.end()) return;
  if constexpr (std::is_same_v<T, std::string>) {
    if (it->is_string()) set(it->template get<std::string>());
  } else if constexpr (std::is_floating_point_v<T>) {
    if (it->is_number()) set(it->template get<T>());
  } else {
    if (it->is_number_integer()) set(it->template get<T>());
  }
}

#define HP_FIELD(type, name) read<type>(j, #name, [&](const type& v) { out.set_##name(v); })

void read_node(const ordered_json& j, v1::NodeStatus& out) {
  HP_FIELD(std::string, name);
  HP_FIELD(std::string, role);
  HP_FIELD(std::string, state);
  HP_FIELD(std::string, instance_id);
  HP_FIELD(std::string, boot_id);
  HP_FIELD(uint64_t, holder_pid);
  HP_FIELD(uint64_t, agent_pid);
}

void read_worker(const ordered_json& j, v1::WorkerStatus& out) {
  HP_FIELD(int32_t, rank);
  HP_FIELD(std::string, node);
  HP_FIELD(uint64_t, pid);
  HP_FIELD(uint64_t, generation);
  HP_FIELD(std::string, state);
  HP_FIELD(std::string, phase);
  HP_FIELD(uint64_t, step);
}

void read_status(const ordered_json& j, v1::JobStatus& out) {
  HP_FIELD(uint64_t, job);
  HP_FIELD(std::string, name);
  HP_FIELD(std::string, state);
  HP_FIELD(uint64_t, generation);
  HP_FIELD(uint64_t, step);
  out.set_loss(std::numeric_limits<double>::quiet_NaN());
  HP_FIELD(double, loss);
  HP_FIELD(int64_t, restarts);
  HP_FIELD(std::string, reason);
  HP_FIELD(uint64_t, total_steps);
  HP_FIELD(double, tokens_per_second);
  HP_FIELD(uint64_t, checkpoint_step);
  HP_FIELD(std::string, checkpoint_dir);
  HP_FIELD(int64_t, submitted_wall_ms);
  HP_FIELD(int64_t, ended_wall_ms);
  HP_FIELD(int64_t, lost_ms);
  HP_FIELD(int32_t, faults);
  HP_FIELD(std::string, owner);
}

void read_event(const ordered_json& j, v1::Event& out) {
  HP_FIELD(uint64_t, seq);
  HP_FIELD(int64_t, wall_ms);
  HP_FIELD(std::string, type);
  HP_FIELD(uint64_t, job);
  HP_FIELD(uint64_t, generation);
  HP_FIELD(std::string, node);
  out.set_rank(-1);
  HP_FIELD(int32_t, rank);
  HP_FIELD(std::string, cause);
  read<uint64_t>(j, "because", [&](uint64_t v) { out.set_because_seq(v); });
}

#undef HP_FIELD

// An object, or an error that says what the text should have been.
Result<ordered_json> parse_object(const std::string& text, const char* what) {
  ordered_json j = ordered_json::parse(text, nullptr, false);
  if (!j.is_object()) {
    return Error{ErrorCode::kDataLoss, std::string("expected the JSON object of ") + what};
  }
  return j;
}

}  // namespace

std::string to_json_text(const v1::JobStatus& s) {
  ordered_json nodes = ordered_json::array();
  for (const auto& node : s.nodes()) nodes.push_back(node_json(node));
  ordered_json workers = ordered_json::array();
  for (const auto& worker : s.workers()) workers.push_back(worker_json(worker));
  ordered_json j = {{"job", s.job()},
                    {"name", s.name()},
                    {"state", s.state()},
                    {"generation", s.generation()},
                    {"step", s.step()},
                    {"loss", nullptr},
                    {"restarts", s.restarts()},
                    {"controller", {{"pid", s.controller_pid()}, {"node", s.controller_node()}}},
                    {"nodes", nodes},
                    {"workers", workers},
                    {"reason", s.reason()},
                    {"total_steps", s.total_steps()},
                    {"tokens_per_second", s.tokens_per_second()},
                    {"checkpoint_step", s.checkpoint_step()},
                    {"checkpoint_dir", s.checkpoint_dir()},
                    {"submitted_wall_ms", s.submitted_wall_ms()},
                    {"ended_wall_ms", s.ended_wall_ms()},
                    {"lost_ms", s.lost_ms()},
                    {"faults", s.faults()},
                    {"owner", s.owner()}};
  if (std::isfinite(s.loss())) j["loss"] = s.loss();
  return dump(j);
}

std::string to_json_text(const v1::Event& event) { return dump(event_json(event)); }

std::string to_json_text(const std::vector<v1::JobSummary>& jobs) {
  ordered_json list = ordered_json::array();
  for (const auto& job : jobs) {
    list.push_back({{"job", job.job()}, {"name", job.name()}, {"state", job.state()}});
  }
  return dump({{"jobs", list}});
}

std::string to_json_text(const std::vector<v1::NodeStatus>& nodes) {
  ordered_json list = ordered_json::array();
  for (const auto& node : nodes) {
    list.push_back(node_json(node));
    list.back()["job"] = node.job();
  }
  return dump({{"nodes", list}});
}

std::string to_json_text(const v1::JobStatus& status, const v1::WhyResponse& why) {
  ordered_json chain = ordered_json::array();
  for (const auto& event : why.chain()) chain.push_back(event_json(event));
  return dump({{"job", status.job()},
               {"state", status.state()},
               {"summary", why.summary()},
               {"chain", chain}});
}

Result<v1::JobStatus> job_status_from_json(const std::string& text) {
  HP_TRY_ASSIGN(const ordered_json j, parse_object(text, "a job status"));
  v1::JobStatus status;
  read_status(j, status);
  if (const auto it = j.find("controller"); it != j.end() && it->is_object()) {
    read<uint64_t>(*it, "pid", [&](uint64_t v) { status.set_controller_pid(v); });
    read<std::string>(*it, "node", [&](const std::string& v) { status.set_controller_node(v); });
  }
  if (const auto it = j.find("nodes"); it != j.end() && it->is_array()) {
    for (const auto& item : *it) {
      if (!item.is_object()) continue;
      read_node(item, *status.add_nodes());
      status.mutable_nodes()->rbegin()->set_job(status.job());
    }
  }
  if (const auto it = j.find("workers"); it != j.end() && it->is_array()) {
    for (const auto& item : *it) {
      if (item.is_object()) read_worker(item, *status.add_workers());
    }
  }
  if (status.job() == 0) return Error{ErrorCode::kDataLoss, "a job status without a job id"};
  return status;
}

Result<v1::Event> event_from_json(const std::string& text) {
  HP_TRY_ASSIGN(const ordered_json j, parse_object(text, "an event"));
  v1::Event event;
  read_event(j, event);
  if (event.seq() == 0) return Error{ErrorCode::kDataLoss, "an event without a seq"};
  return event;
}

}  // namespace hpctl
