// SPDX-License-Identifier: Apache-2.0
// A real hpcontroller in a home of its own, for tests: started, armed, killed, waited for, and
// nothing of it left behind.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/job/job_spec.h"
#include "common/job/paths.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"

namespace hpctl::test {

std::string program(const std::string& name);  // in HPCTL_BIN

class LiveController {
 public:
  LiveController();
  // Ends whatever was started since the constructor, then removes the home.
  ~LiveController();
  LiveController(const LiveController&) = delete;
  LiveController& operator=(const LiveController&) = delete;

  const HomePaths& paths() const { return paths_; }

  // Starts a controller as our child and returns when it serves, or when it has ended before.
  // `failpoint` "" = not armed.
  void start(const std::string& failpoint = "", std::vector<std::string> arguments = {});
  // Wait status of our child when it has ended; nullopt while it runs.
  std::optional<int> ended();
  // Waits for our child's end.
  int wait_for_end();
  // Asks the controller, ours or one that an agent started, to end, and waits until it has.
  void terminate();
  pid_t pid() const { return child_; }

  // A fresh connection.
  std::unique_ptr<v1::Controller::Stub> stub() const;

 private:
  pid_t present_pid() const;

  HomePaths paths_;
  const std::string mark_;  // in the environment of all that this test starts
  pid_t child_ = -1;
};

// 60 s for a call of a controller that answers at once.
void set_deadline(grpc::ClientContext& context);

// A job of shell workers; each appends "GENERATION RANK PID" to `journal`, then waits for a line on
// the named pipe `gate`.
JobSpec gated_job(const std::string& name, const std::string& journal, const std::string& gate);

bool eventually(const std::function<bool()>& condition, int timeout_ms);

// Text of the last line of the process's stderr log.
std::string last_line(const std::string& path);

}  // namespace hpctl::test
