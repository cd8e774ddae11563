// SPDX-License-Identifier: Apache-2.0
// One endpoint of libfabric with its resources, and memory to send from and receive into. Messages
// are tagged, so each meets the memory that waits for it. Nothing here waits: the caller calls
// progress() until a transfer has ended. For one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "agent/nodecheck/fabric/fabric.h"
#include "common/base/result.h"

namespace hpctl::agent {

class FabricPort {
 public:
  // Sends and receives that may be under way at a time, each.
  static constexpr size_t kMostUnderWay = 8;

  // With so much memory; 0 where it is not used. kUnavailable names the step that failed.
  static Result<std::unique_ptr<FabricPort>> open(const FabricDomain& domain, size_t sent_bytes,
                                                  size_t received_bytes);
  ~FabricPort();
  FabricPort(const FabricPort&) = delete;
  FabricPort& operator=(const FabricPort&) = delete;

  // The endpoint's address in the provider's own form: bytes for the peer's connect().
  std::string name() const;
  // Once, before anything is sent.
  Outcome connect(const std::string& peer_name);

  // The memory; where it is does not change.
  std::span<char> sent();
  std::span<const char> received() const;

  // Begins with that part of the memory. False: not now, and after some progress().
  Result<bool> send(uint64_t tag, size_t offset, size_t bytes);
  Result<bool> receive(uint64_t tag, size_t offset, size_t bytes);

  struct Ended {
    bool was_received = false;  // else sent
    uint64_t tag = 0;
  };
  // One that has ended since; nullopt = none. An error ends the port's use.
  Result<std::optional<Ended>> progress();

 private:
  struct Parts;
  explicit FabricPort(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace hpctl::agent
