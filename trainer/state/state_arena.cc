// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/state_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <new>
#include <numeric>
#include <string>
#include <utility>

#include "common/base/rng.h"
#include "trainer/kernels/bf16_rounding.h"
#include "trainer/state/may_pass.h"

namespace hpctl {

namespace {

Error no_memory(size_t bytes, int err) {
  Error error = errno_error("cannot reserve " + std::to_string((bytes >> 20) + 1) +
                                " MiB for the state arena (model and optimizer state)",
                            err);
  error.message += "; free memory, raise the memory limit, or use more workers";
  return may_pass(std::move(error));
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

Error not_ours(const std::string& why) {
  return {ErrorCode::kDataLoss,
          "cannot go on from the memory of a former worker: " + why + "; start from a checkpoint"};
}

std::vector<int64_t> begins_of(const ArenaGeometry& geometry) {
  std::vector<int64_t> begins(geometry.block_capacity.size());
  std::exclusive_scan(geometry.block_capacity.begin(), geometry.block_capacity.end(),
                      begins.begin(), int64_t{0});
  return begins;
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
  geometry.shard_index = mesh.part(rank);
  geometry.shard_count = mesh.parts();
  geometry.interval = mesh.coordinate(rank, kShardDims);
  geometry.intervals = mesh.degree(kShardDims);
  for (const Block& block : blocks) {
    geometry.block_capacity.push_back(shard_capacity(block.numel, geometry.intervals));
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
  return static_cast<size_t>(shard_elements()) * (size_t{param_bytes} + 2 * size_t{moment_bytes});
}

size_t ArenaGeometry::state_at() const { return kArenaHeaderBytes + kArenaSlots * notes_bytes; }

size_t ArenaGeometry::bytes() const {
  return state_at() + static_cast<size_t>(all_slots()) * slot_bytes();
}

Result<void*> StateArena::map(int fd, const ArenaGeometry& geometry) {
  const int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* mapping = mmap(nullptr, geometry.bytes(), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (mapping == MAP_FAILED) return no_memory(geometry.bytes(), errno);
  return mapping;
}

Result<StateArena> StateArena::create(int fd, const ArenaGeometry& geometry) {
  if (fd >= 0) HP_TRY(reserve(fd, geometry.bytes()));
  HP_TRY_ASSIGN(void* const mapping, map(fd, geometry));
  StateArena arena(geometry, new (mapping) ArenaHeader{});
  arena.write_header();
  return arena;
}

Result<StateArena> StateArena::open(int fd, const ArenaGeometry& geometry) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || status.st_size != static_cast<off_t>(geometry.bytes())) {
    return not_ours("it has another size");
  }
  HP_TRY_ASSIGN(void* const mapping, map(fd, geometry));
  StateArena arena(geometry, mapping);
  const ArenaHeader& header = arena.header();
  const std::array differences = {
      std::pair("kind", header.magic != kArenaMagic || header.version != kArenaVersion),
      std::pair("job", header.job != geometry.job),
      std::pair("sharding",
                header.shard_index != geometry.shard_index ||
                    header.copied_index != geometry.copied_index ||
                    header.shard_count != geometry.shard_count ||
                    header.shard_elements != static_cast<uint64_t>(geometry.shard_elements())),
      std::pair("model", header.layout_hash != geometry.layout_hash),
      std::pair("type of parameters", header.param_bytes != geometry.param_bytes),
      std::pair("type of moments", header.moment_bytes != geometry.moment_bytes)};
  for (const auto& [what, differs] : differences) {
    if (differs) return not_ours(std::string("it is of another ") + what);
  }
  return arena;
}

Result<StateArena> StateArena::open_former(int fd, const std::vector<Block>& blocks,
                                           const ArenaGeometry& geometry) {
  const ArenaSeals found = read_seals(fd);
  if (found.parts <= 0 || found.part < 0 || found.part >= found.parts) {
    return not_ours("there is no state in it");
  }
  const int32_t parts_of_layers = geometry.shard_count / geometry.intervals;
  if (found.parts % parts_of_layers != 0) return not_ours("it is of another sharding");
  ArenaGeometry former = geometry;
  former.shard_index = found.part;
  former.shard_count = found.parts;
  former.intervals = found.parts / parts_of_layers;
  former.copied_index = found.copied_part;
  former.copies = found.copied_part < 0 ? 0 : static_cast<int32_t>(kCopySlots);
  for (size_t b = 0; b < blocks.size(); ++b) {
    former.block_capacity[b] = shard_capacity(blocks[b].numel, former.intervals);
  }
  // The size tells how many there are.
  former.slots = static_cast<int32_t>(kOwnSlots);
  struct stat status {};
  while (former.slots > 2 && fstat(fd, &status) == 0 &&
         status.st_size < static_cast<off_t>(former.bytes())) {
    --former.slots;
  }
  return open(fd, former);
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

StateArena::StateArena(ArenaGeometry geometry, void* mapping)
    : geometry_(std::move(geometry)),
      block_begin_(begins_of(geometry_)),
      device_(host_device()),
      header_(static_cast<ArenaHeader*>(mapping)),
      state_(static_cast<std::byte*>(mapping) + geometry_.state_at()) {
  HP_CHECK(geometry_.slots <= static_cast<int32_t>(kOwnSlots));
  HP_CHECK(geometry_.copies <= static_cast<int32_t>(kCopySlots));
}

StateArena::StateArena(ArenaGeometry geometry, Device& device, DeviceArray<std::byte> memory)
    : geometry_(std::move(geometry)),
      block_begin_(begins_of(geometry_)),
      device_(device),
      own_header_(geometry_.state_at()),
      device_memory_(std::move(memory)),
      header_(new (own_header_.data()) ArenaHeader{}),
      state_(device_memory_.data()) {
  write_header();
}

void StateArena::write_header() {
  for (ArenaSlotHeader& slot : header_->slots) slot.step.store(kUnsealed);
  header_->magic = kArenaMagic;
  header_->version = kArenaVersion;
  header_->copied_index = geometry_.copied_index;
  header_->param_bytes = geometry_.param_bytes;
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
  if (header_ != nullptr && own_header_.empty()) munmap(header_, geometry_.bytes());
}

void* StateArena::part(int slot, StateKind kind, size_t block) {
  HP_CHECK(slot >= 0 && slot < geometry_.all_slots());
  const auto elements = static_cast<size_t>(geometry_.shard_elements());
  size_t at = static_cast<size_t>(slot) * geometry_.slot_bytes();
  if (kind != StateKind::kParam) at += elements * geometry_.param_bytes;
  if (kind == StateKind::kExpAvgSq) at += elements * geometry_.moment_bytes;
  at += static_cast<size_t>(block_begin_.at(block)) * element_bytes(kind);
  return state_ + at;
}

void StateArena::begin_read(int slot, StateKind kind, size_t block, int64_t first, int64_t count,
                            std::byte* host) {
  device_.begin_download(bytes_at(slot, kind, block, first), host,
                         static_cast<size_t>(count) * element_bytes(kind));
}

std::byte* StateArena::bytes_at(int slot, StateKind kind, size_t block, int64_t first) {
  return static_cast<std::byte*>(part(slot, kind, block)) +
         static_cast<size_t>(first) * element_bytes(kind);
}

void StateArena::write(int slot, StateKind kind, size_t block, int64_t first,
                       std::span<const float> values) {
  if (is_bf16(kind)) {
    std::vector<uint16_t> rounded;
    uint16_t* to = elements<uint16_t>(slot, kind, block) + first;
    if (!device_.is_host()) rounded.resize(values.size());
    uint16_t* const host = device_.is_host() ? to : rounded.data();
    round_to_bf16(values.data(), host, static_cast<int64_t>(values.size()));
    if (!device_.is_host()) device_.upload(host, to, rounded.size() * sizeof(uint16_t));
  } else {
    device_.upload(values.data(), state(slot, kind, block) + first, values.size_bytes());
  }
}

// Blocks are of whole words in every type (align_elements).
void StateArena::clear(int slot, StateKind kind, size_t block) {
  const auto bytes = static_cast<size_t>(geometry_.block_capacity.at(block)) * element_bytes(kind);
  device_.zero(static_cast<float*>(part(slot, kind, block)),
               static_cast<int64_t>(bytes / sizeof(float)));
}

char* StateArena::notes_at(int slot) const {
  return reinterpret_cast<char*>(header_) + kArenaHeaderBytes +
         header_index(slot) * geometry_.notes_bytes;
}

void StateArena::unseal(int slot) {
  slot_header(slot).step.store(kUnsealed, std::memory_order_relaxed);
  // The bytes that follow must not become visible before the mark is gone.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool StateArena::seal(int slot, const Seal& seal, std::string_view notes) {
  if (notes.size() > geometry_.notes_bytes) return false;
  ArenaSlotHeader& header = slot_header(slot);
  header.digest = seal.digest;
  header.generation = seal.generation;
  header.notes_bytes = notes.size();
  std::copy(notes.begin(), notes.end(), notes_at(slot));
  header.step.store(seal.step, std::memory_order_release);
  return true;
}

Seal StateArena::seal_of(int slot) const {
  const ArenaSlotHeader& header = slot_header(slot);
  return {header.step.load(std::memory_order_acquire), header.digest, header.generation};
}

std::string_view StateArena::notes(int slot) const {
  const uint64_t bytes = std::min<uint64_t>(slot_header(slot).notes_bytes, geometry_.notes_bytes);
  return {notes_at(slot), bytes};
}

}  // namespace hpctl
