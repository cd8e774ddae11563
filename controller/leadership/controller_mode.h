// SPDX-License-Identifier: Apache-2.0
// The differences between the controller of a home (home_mode.h: many jobs on one machine) and the
// controller of one job on a cluster (job_mode.h). Controller makes the calls; each names its
// thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/job/directory_owner.h"
#include "common/job/paths.h"
#include "common/net/tls_identity.h"
#include "controller/publish/status_files.h"
#include "controller/schedulers/scheduler.h"

namespace hpctl {

// A controller that did not answer.
struct FormerController {
  std::string node;     // of the job, which it ran on
  std::string address;  // "IP:PORT" at which it listened
};

class ControllerMode {
 public:
  // How the controller may be reached besides its local socket.
  struct Access {
    std::string listen;    // "IP:PORT", port 0 = any free one; "" = not at all
    TlsIdentity identity;  // by which callers know us there
    // The secrets of the tokens that callers show there (common/net/role_token.h).
    std::vector<std::string> secrets;
    uid_t owner = 0;            // whose jobs they are for
    bool older_agents = false;  // agents that have no tokens of their own may come
  };

  virtual ~ControllerMode() = default;
  ControllerMode(const ControllerMode&) = delete;
  ControllerMode& operator=(const ControllerMode&) = delete;

  // At the start, on the caller's thread, in this order. The lock on the state is held.
  virtual Outcome prepare() { return Ok{}; }  // before the rows are read
  virtual void adjust(core::State&) {}        // the rows, as they were read
  virtual Access access() const { return {}; }
  virtual std::unique_ptr<Scheduler> make_scheduler(Scheduler::Post post) = 0;
  // Calls to `address` are accepted and wait. kAlreadyExists: another controller is the one.
  virtual Outcome claim(const std::string& /*address*/) { return Ok{}; }
  // The first event without rows of a job.
  virtual std::optional<core::EventBody> first_event() { return std::nullopt; }

  // Whom this one succeeds, where that one ran on another node of the job.
  virtual std::optional<FormerController> former_controller() const { return std::nullopt; }

  virtual std::string node() const = 0;  // this machine's name, for people
  // The job's identity in its checkpoint directory. Not on the owner thread; may block.
  virtual JobIdentity identify(const core::Job& job) const = 0;
  virtual HomePaths users_home() const = 0;  // HPCTL_HOME
  virtual bool accepts_jobs() const = 0;     // from clients; also: the job's spec is ours to write
  // First event refused. Not on the owner thread; may block.
  virtual void refused(const std::string& /*reason*/) {}
  // Not on the owner thread. False: another controller has taken over, nothing may be decided.
  virtual bool may_record() { return true; }
  // Another controller has taken over; this one must not send or do anything any more. Any thread;
  // looks on a shared file system.
  virtual bool is_superseded() { return false; }
  // Returns whether that is already known. Any thread.
  virtual bool stands_back() const { return false; }
  // Returns whether a job's end is more than its rows.
  virtual bool has_last_word() const { return false; }
  // After the commit and before any node is ordered to end; may come again. Not on the owner
  // thread; may block, and then the nodes wait.
  virtual void job_ended(const core::Job&, const JobView&) {}
  // Owner thread; may come again.
  virtual void nodes_ended(JobId) {}
  // Before each launch of a node of the job. Not on the owner thread; may block. An error: the
  // launch has failed.
  virtual Outcome before_launch(JobId, const std::string& /*submit_key*/) { return Ok{}; }

 protected:
  ControllerMode() = default;
};

}  // namespace hpctl
