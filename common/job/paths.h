// SPDX-License-Identifier: Apache-2.0
// Where things are: under HPCTL_HOME (design: default ~/.hpctl), or, for one job of a cluster, in
// its directory on a shared file system and its state on each node's local disk. The control socket
// is always in /tmp/hpctl-UID/, because a Unix socket path may have at most 107 bytes and must not
// be on a shared disk.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/job/ids.h"

namespace hpctl {

class HomePaths {
 public:
  // `home` is made absolute; it need not exist.
  explicit HomePaths(const std::string& home);
  // One job's controller and agents, seen from `node`: what all nodes share is in `job_dir`; locks,
  // database and socket are in /tmp/hpctl-UID/job-N-NODE/, whose name is shortened by a checksum
  // where it would not leave room for a socket address.
  static HomePaths of_job(const std::string& job_dir, JobId job, const std::string& node);

  bool is_one_job() const { return !node_.empty(); }

  // HPCTL_HOME, or the job's directory.
  const std::string& home() const { return home_; }
  // For one job: in job_dir, where people look, and named after the node.
  std::string controller_log() const;
  // Likewise: who did what here, or was refused (controller/publish/audit_log.h).
  std::string audit_log() const;
  // On a local disk: what one controller process writes for itself.
  const std::string& state() const { return state_; }
  std::string database() const { return state_ + "/controller.db"; }
  std::string controller_lock() const { return state_ + "/controller.lock"; }
  // {"pid":…, "socket":…, "metrics":"HOST:PORT" or ""}, written when the controller is ready.
  std::string controller_json() const { return state_ + "/controller.json"; }

  // Made 0700 by the controller: what is below is its user's business. For one job, its directory.
  std::string jobs() const { return is_one_job() ? home_ : home_ + "/jobs"; }
  std::string job(JobId job) const { return is_one_job() ? home_ : jobs() + "/" + to_string(job); }
  std::string job_spec(JobId id) const { return job(id) + "/job.json"; }
  std::string job_status(JobId id) const { return job(id) + "/status.json"; }
  std::string job_events(JobId id) const { return job(id) + "/events.jsonl"; }
  std::string job_metrics(JobId id) const { return job(id) + "/metrics.jsonl"; }
  std::string job_logs(JobId id) const { return job(id) + "/logs"; }
  std::string rank_log(JobId id, Rank rank) const {
    return job_logs(id) + "/rank-" + to_string(rank) + ".log";
  }
  // Stacks of ranks that hung, one file each; see agent/stacks/main.cc.
  std::string job_stacks(JobId id) const { return job(id) + "/stacks"; }
  std::string default_checkpoints(JobId id) const { return job(id) + "/checkpoints"; }
  std::string rendezvous(JobId id, Generation g) const {
    return job(id) + "/rdzv/g" + to_string(g);
  }
  std::string node(JobId id, const std::string& name) const { return job(id) + "/nodes/" + name; }
  // Held (flock) by the node's holder for its whole life; content: "PID\n".
  std::string node_lock(JobId id, const std::string& name) const;
  std::string node_log(JobId id, const std::string& name) const {
    return node(id, name) + "/agent.log";
  }

  // The same home for root: its controller is the owner's, and so is the place of its socket.
  HomePaths with_socket_of(uid_t owner) const;
  // /tmp/hpctl-UID/<first 12 hex digits of SHA-256 of home()>, or state() for one job.
  std::string socket_directory() const;
  std::string controller_socket() const { return socket_directory() + "/controller.sock"; }

 private:
  std::string home_;
  std::string state_;
  std::string node_;                   // "" = a home with many jobs
  std::optional<uid_t> socket_owner_;  // nullopt = who runs this
};

// The state directory of a cluster controller without --state-dir.
inline constexpr char kClusterStateDir[] = "/var/lib/hpctl";

// $HPCTL_HOME, else $HOME/.hpctl; an error says to set HPCTL_HOME.
Result<HomePaths> home_from_environment();

// An error if the path, made absolute, is not UTF-8. Records, messages and orders carry paths as
// text in JSON and protobuf; such a path would arrive as another one. `what` names the path ("the
// home"), `remedy` says what to do. "" is no path, and no error.
Outcome check_path_is_text(const std::string& what, const std::string& path,
                           const std::string& remedy);

// Creates socket_directory(), which for one job is state() too, with mode 0700 and checks owner and
// mode of both levels: a directory that another user made first is refused with kPermissionDenied.
Outcome prepare_socket_directory(const HomePaths& paths);

// Directory of the running program, for finding its siblings (hpcontroller, hpagent, hptrain).
Result<std::string> program_directory();
// The one that program_directory() gives from then on, for a program that runs from a copy. Call
// while there is one thread.
void set_program_directory(const std::string& directory);

}  // namespace hpctl
