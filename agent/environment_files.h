// SPDX-License-Identifier: Apache-2.0
// env.files of a start, read at every start of the workers, beside the agent's loop: the files may
// lie on a file server that does not answer. The newest start waits for its files; one before it is
// forgotten.
//
// Own thread only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/side_task.h"
#include "common/base/result.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl::agent {

class EnvironmentFiles {
 public:
  // `wake_fd` as SideTask's.
  explicit EnvironmentFiles(int wake_fd) : reader_(wake_fd) {}

  void read(const v1::StartWorkers& start);

  struct Read {
    v1::StartWorkers start;  // its env has the files' variables too
    Outcome outcome = Ok{};
  };
  // Once for each start that still waits, when its files have been read. When `wake_fd` rings.
  std::optional<Read> take();

  // StopWorkers: the start that waits, if it is of a generation <= `through`, is given back.
  std::optional<v1::StartWorkers> withdraw(uint64_t through);

  bool is_busy() const { return reader_.is_busy(); }

 private:
  using Variables = Result<std::map<std::string, std::string>>;

  void begin();

  SideTask reader_;
  std::optional<v1::StartWorkers> waiting_;
  bool is_newer_ = false;  // waiting_ came while the files were read for another
  std::shared_ptr<std::optional<Variables>> result_;  // of the task
};

}  // namespace hpctl::agent
