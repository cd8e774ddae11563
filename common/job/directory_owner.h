// SPDX-License-Identifier: Apache-2.0
// A checkpoint directory has one owner: the job that DIR/owner.json names.
//
//   DIR/owner.json       created exclusively, with its whole content or not at all; replaced in one
//                        rename when the owner has ended, or with --take-directory
//   DIR/owner-next.json  while it is being replaced; created exclusively, so one job replaces it
//
// The file has no heartbeat: a claim asks whether the owner is alive
// (controller/leadership/ask_owner.h), and an owner that does not answer counts as alive. In a
// directory of an older release the owner is the job of the newest generation record. The file lies
// in the directory, so a symlink to the directory leads to the same owner. docs/formats.md gives
// the bytes.
//
// Everything here may block where the file system does. An error of the file system is returned as
// it is; only ENOENT means that a file is absent.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/base/result.h"

namespace hpctl {

struct JobIdentity {
  std::string uuid;  // made at submit; kept by requeues, successors and restarts of controllers
  uint64_t job = 0;  // 0 = not given yet when the file was written
  std::string name;
  std::string user;
  std::string home;     // HPCTL_HOME of a local job; "" = not a local job
  std::string machine;  // where that home is
  std::string job_dir;  // of a job with a controller of its own; "" = a local job
  std::string cluster;  // Slurm's ClusterName; "" = not a Slurm job
};

struct DirectoryOwner {
  JobIdentity owner;
  std::optional<JobIdentity> former;
  bool taken = false;  // from `former` with --take-directory
};

// A command that took the directory (`hpctl checkpoint rm --take-directory`): it has ended.
bool is_command(const JobIdentity& owner);

std::string to_json_text(const DirectoryOwner& owner);
Result<DirectoryOwner> directory_owner_from_json(const std::string& text);

// `job 3 "llama" of alice (HPCTL_HOME /home/alice/.hpctl)`
std::string describe(const JobIdentity& job);

enum class OwnerLife { kEnded, kAlive, kCannotBeAsked };
struct OwnerAnswer {
  OwnerLife life = OwnerLife::kCannotBeAsked;
  std::string words;  // "it is RUNNING", "slurmctld does not answer"
};
using AskOwner = std::function<OwnerAnswer(const JobIdentity&)>;

// nullopt: no job has used the directory, or there is none.
Result<std::optional<DirectoryOwner>> read_directory_owner(const std::string& checkpoint_dir);

// The effect of a claim.
struct DirectoryClaim {
  std::optional<JobIdentity> former;  // whom this job follows, now or by an earlier claim
  bool taken = false;                 // with --take-directory
  bool changed = false;               // by this call
  std::string before;                 // then: text of the file before; "" = there was none
};

// The reaction to an owner that has not ended, as far as is known.
enum class LivingOwner {
  kRefuse,
  kTakeUnreachable,  // taken from one that cannot be asked; one that lives is refused
  kTake,
};

// Makes `self` the owner; the directory is created. Repeating it changes nothing.
// kFailedPrecondition: another job owns it and lives; kUnavailable: that job does not answer. The
// error names the owner and the remedy.
Result<DirectoryClaim> claim_directory(const std::string& checkpoint_dir, const JobIdentity& self,
                                       const AskOwner& ask,
                                       LivingOwner living = LivingOwner::kRefuse);

// Checks whether `self` could claim it now, with the errors of claim_directory(). Changes nothing.
Outcome check_claim(const std::string& checkpoint_dir, const JobIdentity& self,
                    const AskOwner& ask);

// Takes a claim back whose job was not accepted.
Outcome undo_claim(const std::string& checkpoint_dir, const JobIdentity& self,
                   const DirectoryClaim& claim);

// For a directory that the job with this UUID has claimed; "" = any job has. kStorage: it has no
// owner.json, or an unreadable one, so its file system is away, and what is written there would
// hide below its mount. kFailedPrecondition: it belongs to another job, as where a symlink or a
// mount leads to another directory by now.
Outcome check_is_there(const std::string& checkpoint_dir, const std::string& uuid);

// For a job that has owned the directory and recorded a generation there. kFailedPrecondition: it
// belongs to another job by now; kUnavailable: what is there is another job's directory, without
// such a record, so a mount or a link is wrong; kStorage: it has no owner, so its file system is
// away.
Outcome check_ownership(const std::string& checkpoint_dir, const JobIdentity& self);

}  // namespace hpctl
