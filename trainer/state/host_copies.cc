// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/host_copies.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"

namespace hpctl {

HostCopies::HostCopies(Device& device, StateArena arena, size_t piece_bytes)
    : device_(device), arena_(std::move(arena)), piece_bytes_(piece_bytes) {
  const std::span<std::byte> memory = arena_.own_memory();
  device_.lock_host(memory.data(), memory.size());
}

HostCopies::~HostCopies() {
  try {
    give_up();
  } catch (const std::exception& e) {
    // A failed GPU writes nothing any more.
    log_warning(std::string("a copy of the state to host memory is given up: ") + e.what());
  }
  device_.unlock_host(arena_.own_memory().data());
}

void HostCopies::begin(StateArena& from, int slot, const Seal& seal, std::string notes) {
  HP_CHECK(!under_way_);
  arena_.unseal(slot);
  under_way_ = UnderWay{slot, seal, std::move(notes)};
  const std::span<const std::byte> state = from.slot_bytes(0);
  const std::span<std::byte> copy = arena_.slot_bytes(slot);
  HP_CHECK(state.size() == copy.size());
  for (size_t at = 0; at < state.size(); at += piece_bytes_) {
    const size_t bytes = std::min(piece_bytes_, state.size() - at);
    device_.begin_download(state.data() + at, copy.data() + at, bytes);
    ++counts_.calls;
    counts_.bytes += bytes;
  }
  ++counts_.begun;
  HP_FAILPOINT("trainer.copy.begun");
}

bool HostCopies::finish() {
  HP_CHECK(under_way_);
  const auto began = std::chrono::steady_clock::now();
  device_.await_downloads();
  counts_.waited_s +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  HP_FAILPOINT("trainer.copy.arrived");
  const UnderWay done = *std::exchange(under_way_, std::nullopt);
  return arena_.seal(done.slot, done.seal, done.notes);
}

void HostCopies::give_up() {
  if (!under_way_) return;
  under_way_.reset();
  device_.await_downloads();
}

void HostCopies::restore(int slot, StateArena& to) {
  HP_CHECK(!under_way_);
  const std::span<const std::byte> copy = arena_.slot_bytes(slot);
  const std::span<std::byte> state = to.slot_bytes(0);
  HP_CHECK(state.size() == copy.size());
  for (size_t at = 0; at < copy.size(); at += piece_bytes_) {
    device_.upload(copy.data() + at, state.data() + at, std::min(piece_bytes_, copy.size() - at));
  }
}

}  // namespace hpctl
