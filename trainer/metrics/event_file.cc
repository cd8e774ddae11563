// SPDX-License-Identifier: Apache-2.0
#include "trainer/metrics/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "common/base/checksum.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/host.h"

namespace hpctl {
namespace {

// Protobuf wire format: a key is field << 3 | type.
constexpr uint32_t kVarint = 0;
constexpr uint32_t kFixed64 = 1;
constexpr uint32_t kBytes = 2;
constexpr uint32_t kFixed32 = 5;

// Fields of tensorflow.Event, .Summary, .Summary.Value and .SessionLog.
constexpr uint32_t kEventWallTime = 1;
constexpr uint32_t kEventStep = 2;
constexpr uint32_t kEventFileVersion = 3;
constexpr uint32_t kEventSummary = 5;
constexpr uint32_t kEventSessionLog = 7;
constexpr uint32_t kSummaryValue = 1;
constexpr uint32_t kValueTag = 1;
constexpr uint32_t kValueSimple = 2;
constexpr uint32_t kSessionStatus = 1;
constexpr uint64_t kSessionStart = 1;

void put_fixed(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

void put_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80U);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void put_key(std::string& out, uint32_t field, uint32_t type) {
  put_varint(out, field << 3 | type);
}

void put_number(std::string& out, uint32_t field, uint64_t value) {
  put_key(out, field, kVarint);
  put_varint(out, value);
}

void put_text(std::string& out, uint32_t field, std::string_view text) {
  put_key(out, field, kBytes);
  put_varint(out, text.size());
  out += text;
}

std::string event_at(double wall_s, uint64_t step) {
  std::string event;
  put_key(event, kEventWallTime, kFixed64);
  put_fixed(event, std::bit_cast<uint64_t>(wall_s), 8);
  put_number(event, kEventStep, step);
  return event;
}

// So that a checksum of data that contains checksums is no weaker (TensorFlow, lib/hash/crc32c.h).
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes.data(), bytes.size());
  return std::rotr(crc, 15) + 0xa282ead8U;
}

constexpr std::string_view kNameBegin = "events.out.tfevents.";

// The largest number in the names of the event files there; 0 = there are none.
Result<int64_t> newest_number(const std::string& directory) {
  HP_TRY_ASSIGN(const auto names, list_directory(directory));
  int64_t newest = 0;
  for (const std::string& name : names) {
    if (!name.starts_with(kNameBegin)) continue;
    constexpr int64_t kMost = int64_t{1} << 40;  // beyond, it is no time
    int64_t number = 0;
    std::from_chars(name.data() + kNameBegin.size(), name.data() + name.size(), number);
    if (number < kMost) newest = std::max(newest, number);
  }
  return newest;
}

double now_s() { return static_cast<double>(SystemClock().wall_ms()) / 1000.0; }

}  // namespace

std::string version_event(double wall_s) {
  std::string event = event_at(wall_s, 0);
  put_text(event, kEventFileVersion, "brain.Event:2");
  return event;
}

std::string session_start_event(double wall_s, uint64_t step) {
  std::string log;
  put_number(log, kSessionStatus, kSessionStart);
  std::string event = event_at(wall_s, step);
  put_text(event, kEventSessionLog, log);
  return event;
}

std::string scalars_event(double wall_s, uint64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string entry;
    put_text(entry, kValueTag, tag);
    put_key(entry, kValueSimple, kFixed32);
    put_fixed(entry, std::bit_cast<uint32_t>(static_cast<float>(value)), 4);
    put_text(summary, kSummaryValue, entry);
  }
  std::string event = event_at(wall_s, step);
  put_text(event, kEventSummary, summary);
  return event;
}

std::string tf_record(std::string_view event) {
  std::string record;
  put_fixed(record, event.size(), 8);
  put_fixed(record, masked_crc(record), 4);
  record += event;
  put_fixed(record, masked_crc(event), 4);
  return record;
}

Result<EventFile> EventFile::create(const std::string& directory, uint64_t first_step) {
  HP_TRY(make_directories(directory));
  EventFile file;
  const double now = now_s();
  HP_TRY_ASSIGN(const int64_t newest, newest_number(directory));
  const int64_t number = std::max(static_cast<int64_t>(now), newest + 1);
  file.path_ = directory + "/" + std::string(kNameBegin) + std::to_string(number) + "." +
               host_name() + "." + std::to_string(::getpid());
  file.fd_.reset(::open(file.path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file.fd_.valid()) return errno_error("cannot open " + file.path_);
  HP_TRY(write_all(file.fd_.get(),
                   tf_record(version_event(now)) + tf_record(session_start_event(now, first_step)),
                   file.path_));
  return file;
}

std::string EventFile::record_of(uint64_t step, const Scalars& scalars) {
  return tf_record(scalars_event(now_s(), step, scalars));
}

Outcome EventFile::append(uint64_t step, const Scalars& scalars) {
  return append(record_of(step, scalars));
}

Outcome EventFile::append(const std::string& record) { return write_all(fd_.get(), record, path_); }

}  // namespace hpctl
