// SPDX-License-Identifier: Apache-2.0
// Scalars in the form that TensorBoard reads: a file of records (TFRecord: u64 length, masked
// CRC-32C of it, bytes, masked CRC-32C of them), each one protobuf message `tensorflow.Event`
// (tensorflow/core/util/event.proto). The few fields used are encoded by hand.
//
// A run that goes back after a fault begins a new file in the same directory, with SessionLog.START
// at the first step it repeats: TensorBoard then forgets the older values from there on.
// TensorBoard reads the files in the order of their names, and the later file counts. So the name
// of a new file comes behind all others, also where the clock has gone back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

using Scalars = std::vector<std::pair<const char*, double>>;  // tag, value

// Encodings, for the writer and its tests. `wall_s`: Unix seconds.
std::string version_event(double wall_s);
std::string session_start_event(double wall_s, uint64_t step);
std::string scalars_event(double wall_s, uint64_t step, const Scalars& scalars);
std::string tf_record(std::string_view event);

class EventFile {
 public:
  // Makes the directory and a new file `events.out.tfevents.SECONDS.HOST.PID` in it, for a run
  // whose next step is `first_step`. SECONDS is the time, or one more than that of the newest file.
  static Result<EventFile> create(const std::string& directory, uint64_t first_step);

  // What append() writes.
  static std::string record_of(uint64_t step, const Scalars& scalars);
  // One write; a reader sees whole records.
  Outcome append(uint64_t step, const Scalars& scalars);
  Outcome append(const std::string& record);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  UniqueFd fd_;
};

}  // namespace hpctl
