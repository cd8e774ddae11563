// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/state_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>
#include <numeric>
#include <string>
#include <utility>

#include "common/base/rng.h"
#include "trainer/parallel/bf16_rounding.h"

namespace hpctl {

namespace {

Error no_memory(size_t bytes, int err) {
  Error error = errno_error("cannot reserve " + std::to_string((bytes >> 20) + 1) +
                                " MiB for the state arena (model and optimizer state)",
                            err);
  error.message += "; free memory, raise the memory limit, or use more workers";
  return error;
}

Outcome reserve(int fd, size_t bytes) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return errno_error("cannot use the state arena descriptor");
  // A former owner's arena may be larger; its size is then ours, its contents are not.
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return no_memory(bytes, errno);
  const int err = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (err != 0) return no_memory(bytes, err);
  return Ok{};
}

uint64_t hash_text(uint64_t hash, const std::string& text) {
  for (const char c : text) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return mix64(hash ^ text.size());
}

}  // namespace

ArenaGeometry ArenaGeometry::of(const std::vector<Block>& blocks, uint64_t job, int32_t rank,
                                const Mesh& mesh) {
  ArenaGeometry geometry;
  geometry.job = job;
  geometry.rank = rank;
  geometry.world_size = mesh.world_size();
  geometry.shard_index = mesh.coordinate(rank, MeshDim::kDpShard);
  geometry.shard_count = mesh.degree(MeshDim::kDpShard);
  for (const Block& block : blocks) {
    geometry.block_capacity.push_back(shard_capacity(block.numel, geometry.shard_count));
    for (const TensorSlot& tensor : block.tensors) {
      geometry.layout_hash = hash_text(geometry.layout_hash, tensor.name);
      geometry.layout_hash = mix64(geometry.layout_hash ^ static_cast<uint64_t>(tensor.offset));
      for (const int64_t extent : tensor.shape) {
        geometry.layout_hash = mix64(geometry.layout_hash ^ static_cast<uint64_t>(extent));
      }
    }
  }
  return geometry;
}

int64_t ArenaGeometry::shard_elements() const {
  return std::accumulate(block_capacity.begin(), block_capacity.end(), int64_t{0});
}

size_t ArenaGeometry::slot_bytes() const {
  return static_cast<size_t>(shard_elements()) * (sizeof(float) + 2 * size_t{moment_bytes});
}

size_t ArenaGeometry::bytes() const {
  return kArenaHeaderBytes + static_cast<size_t>(slots) * slot_bytes();
}

Result<StateArena> StateArena::create(int fd, const ArenaGeometry& geometry) {
  const size_t bytes = geometry.bytes();
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (fd >= 0) {
    HP_TRY(reserve(fd, bytes));
    flags = MAP_SHARED;
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) return no_memory(bytes, errno);
  return StateArena(geometry, memory);
}

StateArena StateArena::create(Device& device, const ArenaGeometry& geometry) {
  return {
      geometry, device,
      DeviceArray<std::byte>(device, static_cast<size_t>(geometry.slots) * geometry.slot_bytes())};
}

StateArena StateArena::create_offloaded(Device& device, const ArenaGeometry& geometry) {
  return {geometry, host_device(),
          DeviceArray<std::byte>::on_host(
              device, static_cast<size_t>(geometry.slots) * geometry.slot_bytes())};
}

StateArena::StateArena(ArenaGeometry geometry, void* memory)
    : geometry_(std::move(geometry)),
      device_(host_device()),
      header_(new (memory) ArenaHeader{}),
      state_(static_cast<std::byte*>(memory) + kArenaHeaderBytes) {
  HP_CHECK(geometry_.slots == 2);
  write_header();
}

StateArena::StateArena(ArenaGeometry geometry, Device& device, DeviceArray<std::byte> memory)
    : geometry_(std::move(geometry)),
      device_(device),
      own_header_(std::make_unique<ArenaHeader>()),
      device_memory_(std::move(memory)),
      header_(own_header_.get()),
      state_(device_memory_.data()) {
  write_header();
}

void StateArena::write_header() {
  int64_t begin = 0;
  for (const int64_t capacity : geometry_.block_capacity) {
    block_begin_.push_back(begin);
    begin += capacity;
  }
  unseal(0);
  unseal(1);
  header_->magic = kArenaMagic;
  header_->version = kArenaVersion;
  header_->rank = geometry_.rank;
  header_->world_size = geometry_.world_size;
  header_->moment_bytes = geometry_.moment_bytes;
  header_->shard_index = geometry_.shard_index;
  header_->shard_count = geometry_.shard_count;
  header_->shard_elements = static_cast<uint64_t>(geometry_.shard_elements());
  header_->layout_hash = geometry_.layout_hash;
  header_->job = geometry_.job;
}

StateArena::StateArena(StateArena&& other) noexcept
    : geometry_(std::move(other.geometry_)),
      block_begin_(std::move(other.block_begin_)),
      device_(other.device_),
      own_header_(std::move(other.own_header_)),
      device_memory_(std::move(other.device_memory_)),
      header_(std::exchange(other.header_, nullptr)),
      state_(other.state_) {}

StateArena::~StateArena() {
  if (header_ != nullptr && !own_header_) munmap(header_, geometry_.bytes());
}

void* StateArena::part(int slot, StateKind kind, size_t block) {
  HP_CHECK(slot >= 0 && slot < geometry_.slots);
  const auto elements = static_cast<size_t>(geometry_.shard_elements());
  const size_t each = kind == StateKind::kParam ? sizeof(float) : geometry_.moment_bytes;
  size_t at = static_cast<size_t>(slot) * geometry_.slot_bytes();
  if (kind != StateKind::kParam) at += elements * sizeof(float);
  if (kind == StateKind::kExpAvgSq) at += elements * geometry_.moment_bytes;
  at += static_cast<size_t>(block_begin_.at(block)) * each;
  return state_ + at;
}

float* StateArena::state(int slot, StateKind kind, size_t block) {
  HP_CHECK(!is_bf16(kind));
  return static_cast<float*>(part(slot, kind, block));
}

uint16_t* StateArena::bf16_state(int slot, StateKind kind, size_t block) {
  HP_CHECK(is_bf16(kind));
  return static_cast<uint16_t*>(part(slot, kind, block));
}

void StateArena::begin_read(int slot, StateKind kind, size_t block, int64_t first, int64_t count,
                            std::byte* host) {
  const size_t each = element_bytes(kind);
  const auto* from = static_cast<const std::byte*>(part(slot, kind, block));
  device_.begin_download(from + static_cast<size_t>(first) * each, host,
                         static_cast<size_t>(count) * each);
}

void StateArena::write(int slot, StateKind kind, size_t block, int64_t first,
                       std::span<const float> values) {
  if (is_bf16(kind)) {
    std::vector<uint16_t> rounded;
    uint16_t* to = bf16_state(slot, kind, block) + first;
    if (!device_.is_host()) rounded.resize(values.size());
    uint16_t* const host = device_.is_host() ? to : rounded.data();
    round_to_bf16(values.data(), host, static_cast<int64_t>(values.size()));
    if (!device_.is_host()) device_.upload(host, to, rounded.size() * sizeof(uint16_t));
  } else {
    device_.upload(values.data(), state(slot, kind, block) + first, values.size_bytes());
  }
}

void StateArena::unseal(int slot) {
  header_->slots[slot].step.store(kUnsealed, std::memory_order_relaxed);
  // The bytes that follow must not become visible before the mark is gone.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void StateArena::seal(int slot, uint64_t step, uint64_t sample_cursor, uint64_t generation,
                      const LossScaleRecord& loss_scale) {
  header_->slots[slot].sample_cursor = sample_cursor;
  header_->slots[slot].generation = generation;
  header_->slots[slot].loss_scale = loss_scale;
  header_->slots[slot].step.store(step, std::memory_order_release);
}

}  // namespace hpctl
