// SPDX-License-Identifier: Apache-2.0
// The controllers of a job on a cluster: JOBDIR/controllers/K.json, K = 1, 2, ...
// (docs/formats.md).
//
// A record is created exclusively and whole (temporary, fsync, link, fsync directory), so of two
// controllers that want to be the K-th one gets it. The highest K is the controller: agents and
// hpctl follow it, and a controller that sees a higher K yields. Records are never changed or
// removed while the job lives. Free functions; safe from any thread; they do I/O on a shared file
// system and may block.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

struct ControllerRecord {
  uint64_t epoch = 0;   // K
  std::string address;  // "IP:PORT" of its TCP listener
  // PEM: the peer at this address must prove that it has its key (common/net/tls_identity.h). "" =
  // of a release without certificates: agents never connect to it.
  std::string certificate;
  std::string node;
  uint64_t pid = 0;
  std::string boot_id;          // of the machine
  int64_t started_wall_ms = 0;  // label
  // All nodes of the job, nodes with ranks first: a successor needs them.
  std::vector<std::string> nodes;
  std::string scheduler;       // "slurm" | "none"
  uint64_t restart_count = 0;  // of the Slurm job: how often it was requeued before
  // It takes agents' own tokens (common/net/role_token.h). A release that knew of none, and wrote
  // no such thing, takes the job's token of everybody.
  bool agent_tokens = false;
  // Agents of such a release may still come: then that token lets an agent in as well.
  bool older_agents = false;
  // It takes tokens that name root as the person who acts for the owner.
  bool owner_tokens = false;
};

std::string to_json_text(const ControllerRecord& record);
Result<ControllerRecord> controller_record_from_json(const std::string& text);

// kAlreadyExists when that epoch is taken.
Outcome create_controller_record(const std::string& job_dir, const ControllerRecord& record);

// The highest epoch; 0 = none yet.
Result<uint64_t> newest_controller_epoch(const std::string& job_dir);

// The record of the highest epoch; nullopt = none yet.
Result<std::optional<ControllerRecord>> newest_controller(const std::string& job_dir);

}  // namespace hpctl
