// SPDX-License-Identifier: Apache-2.0
// What ranks of one node contribute from memory that the others read where it lies: below and above
// what slots hold, beside ranks that have none of it, and when a rank goes in the middle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <future>
#include <latch>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "tests/unit/trainer/comm_world.h"
#include "trainer/comm/shared_segment.h"

namespace hpctl {
namespace {

using test::carried_by;
using test::options_for;
using ::testing::HasSubstr;

constexpr size_t kAllSlotsFloats =
    SharedSegment::kSlots * SharedSegment::kSlotBytes / sizeof(float);

std::span<float> shared_floats(Communicator& comm, size_t count) {
  auto* memory = static_cast<float*>(comm.allocate_shared(count * sizeof(float)));
  EXPECT_NE(memory, nullptr);
  return {memory, count};
}

void with_world(int ranks, const std::function<void(Communicator&)>& body) {
  test::on_every_rank(ranks, [&](const CommunicatorOptions& options) {
    test::take_part(*carried_by(Carrier::kSharedMemory, options), body);
  });
}

TEST(SharedSegment, WhatLiesInARoomIsReadThereAndHeldUntilAllHaveReadIt) {
  std::vector<SharedSegment> ranks = test::segments_of(3);
  const size_t bytes = 2 * SharedSegment::kSlots * SharedSegment::kSlotBytes;
  std::byte* const own = ranks[1].allocate(bytes);
  std::byte* const other = ranks[1].allocate(8);
  ASSERT_TRUE(ranks[1].is_in_room(own) && ranks[1].is_in_room(other));
  EXPECT_FALSE(ranks[0].is_in_room(own));
  EXPECT_FALSE(ranks[1].is_in_room(ranks[1].free_slot()));
  own[bytes - 1] = std::byte{42};
  ASSERT_TRUE(ranks[1].publish_in_room(own + 8, bytes - 8, 7, only_rank(0) | only_rank(2)));
  for (const int reader : {0, 2}) {
    EXPECT_NE(ranks[1].readers_of({own, bytes}) & only_rank(reader), 0U);
    EXPECT_EQ(ranks[1].readers_of({other, 8}), 0U);
    const auto piece = ranks[reader].front(1);
    ASSERT_TRUE(piece && piece->in_room);
    EXPECT_EQ(piece->bytes, bytes - 8);
    EXPECT_EQ(piece->data[bytes - 9], std::byte{42});
    ranks[reader].pop(1);
  }
  EXPECT_EQ(ranks[1].readers_of({own, bytes}), 0U);
}

TEST(SharedSegment, ARoomHasAnEndAndItsPiecesASlotEach) {
  SharedSegment sender = std::move(test::segments_of(2).front());
  std::byte* const first = sender.allocate(SharedSegment::kRoomBytes - 4096);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(sender.allocate(4097), nullptr);
  EXPECT_EQ(sender.allocate(1), first + SharedSegment::kRoomBytes - 4096);
  EXPECT_EQ(sender.allocate(1), nullptr);
  for (size_t i = 0; i < SharedSegment::kSlots; ++i) {
    ASSERT_TRUE(sender.publish_in_room(first, 8, i, only_rank(1)));
  }
  EXPECT_FALSE(sender.publish_in_room(first, 8, SharedSegment::kSlots, only_rank(1)));
}

// Adds, then gathers the sums, in `buffer`, which is used for both; numbers begin at `first`.
void add_and_gather(Communicator& comm, std::span<float> buffer, size_t first) {
  const size_t chunk = buffer.size() / static_cast<size_t>(comm.world_size());
  const size_t own = chunk * static_cast<size_t>(comm.rank());
  const std::vector<float> sums = test::sums_of_numbers(comm.world_size());
  std::vector<float> sum(chunk);
  ASSERT_TRUE(comm.await_readers(std::as_bytes(buffer)).ok());
  test::repeat(test::numbers_of(comm.rank()), first, buffer);
  ASSERT_TRUE(comm.reduce_scatter(buffer.data(), chunk, sum.data()).ok());
  ASSERT_EQ(test::first_wrong<float>(sum, sums, first + own), chunk);
  ASSERT_TRUE(comm.await_readers(std::as_bytes(buffer)).ok());
  std::memset(buffer.data(), 0xff, buffer.size_bytes());
  std::copy(sum.begin(), sum.end(), buffer.subspan(own).begin());
  ASSERT_TRUE(comm.all_gather(buffer.data(), chunk * sizeof(float)).ok());
  ASSERT_EQ(test::first_wrong<float>(buffer, sums, first), buffer.size());
}

// Where a chunk is odd, every second rank has its buffer elsewhere.
TEST(SharedRoom, GathersAndSumsHaveTheSameBitsAsThoseOfOtherMemory) {
  for (const int ranks : {2, 3}) {
    with_world(ranks, [](Communicator& comm) {
      for (const size_t chunk : {0UL, 16UL, 70'001UL, kAllSlotsFloats + 1000}) {
        const size_t floats = chunk * static_cast<size_t>(comm.world_size());
        std::vector<float> elsewhere(floats);
        const std::span<float> buffer = comm.rank() % 2 == 1 && chunk % 2 == 1
                                            ? std::span(elsewhere)
                                            : shared_floats(comm, floats);
        for (const size_t first : {0UL, 1UL}) add_and_gather(comm, buffer, first);
      }
    });
  }
}

// The others need no further call of the one that has begun it.
TEST(SharedRoom, MoreThanTheSlotsHoldIsThereWhenACollectiveHasBegun) {
  const size_t chunk = kAllSlotsFloats + 1000;
  std::latch read(1);
  with_world(2, [&](Communicator& comm) {
    const std::span<float> gathered = shared_floats(comm, 2 * chunk);
    const std::span<float> input = shared_floats(comm, 2 * chunk);
    std::fill(gathered.begin(), gathered.end(), static_cast<float>(comm.rank() + 1));
    std::fill(input.begin(), input.end(), static_cast<float>(comm.rank() + 1));
    std::vector<float> sum(chunk);
    const auto gather = comm.begin_all_gather(gathered.data(), chunk * sizeof(float)).value();
    const auto reduce = comm.begin_reduce_scatter(input.data(), chunk, sum.data()).value();
    if (comm.rank() == 0) read.wait();
    ASSERT_TRUE(gather->wait().ok());
    ASSERT_TRUE(reduce->wait().ok());
    if (comm.rank() == 1) read.count_down();
    EXPECT_EQ(gathered.front(), 1);
    EXPECT_EQ(gathered.back(), 2);
    EXPECT_EQ(sum.back(), 3);
  });
}

// Rank 1 has begun first, and so taken nothing of rank 0's.
TEST(SharedRoom, ABufferIsHeldUntilAReaderThatIsBehindHasReadIt) {
  std::latch begun(1);
  std::promise<void> returned;
  with_world(2, [&](Communicator& comm) {
    const std::span<float> buffer = shared_floats(comm, 2);
    buffer[static_cast<size_t>(comm.rank())] = 1;
    if (comm.rank() == 0) {
      begun.wait();
      ASSERT_TRUE(comm.all_gather(buffer.data(), sizeof(float)).ok());
      ASSERT_TRUE(comm.await_readers(std::as_bytes(buffer)).ok());
      buffer[0] = 2;
      returned.set_value();
      return;
    }
    const auto gather = comm.begin_all_gather(buffer.data(), sizeof(float)).value();
    begun.count_down();
    EXPECT_EQ(returned.get_future().wait_for(std::chrono::milliseconds(20)),
              std::future_status::timeout);
    ASSERT_TRUE(gather->wait().ok());
    EXPECT_EQ(buffer[0], 1);
  });
}

// As rank 1: begins a gather, which takes nothing of a later one, and does nothing more.
void begin_and_stop(const CommunicatorOptions& options) {
  const auto comm = carried_by(Carrier::kSharedMemory, options);
  if (!comm->connect().ok()) _exit(1);
  std::vector<float> buffer(2);
  const auto gather = comm->begin_all_gather(buffer.data(), sizeof(float));
  for (;;) pause();
}

class ReaderThatIsGone : public ::testing::Test {
 protected:
  void SetUp() override {
    peer_ = fork();
    ASSERT_GE(peer_, 0);
    if (peer_ == 0) begin_and_stop(options_for(dir_, 1, 2));
    comm_ = carried_by(Carrier::kSharedMemory, options_for(dir_, 0, 2));
    ASSERT_TRUE(comm_->connect().ok());
    buffer_ = shared_floats(*comm_, 2 * kAllSlotsFloats);
    first_ = comm_->begin_all_gather(buffer_.data(), sizeof(float)).value();
    ASSERT_TRUE(first_->wait().ok());
    second_ = comm_->begin_all_gather(buffer_.data() + 16, sizeof(float)).value();
  }
  void TearDown() override {
    kill(peer_, SIGKILL);
    waitpid(peer_, nullptr, 0);
  }
  Outcome await_readers() { return comm_->await_readers(std::as_bytes(buffer_)); }

  const TemporaryDirectory dir_;
  pid_t peer_ = -1;
  std::unique_ptr<Communicator> comm_;
  std::span<float> buffer_;
  CollectivePtr first_;
  CollectivePtr second_;
};

TEST_F(ReaderThatIsGone, EndsTheWaitForIt) {
  kill(peer_, SIGKILL);
  const Outcome outcome = await_readers();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, kPeerLost);
  EXPECT_THAT(outcome.error().message, HasSubstr("of rank 0 failed: connection to rank 1 closed"));
}

TEST_F(ReaderThatIsGone, DoesNotHoldUpAnAbort) {
  auto waiting = std::async(std::launch::async, [this] { return await_readers(); });
  comm_->abort();
  const Outcome outcome = waiting.get();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.error().message, HasSubstr("failed: aborted"));
}

TEST(SharedRoom, EndsWithItsCommunicator) {
  const auto mappings = [] {
    const std::string maps = read_file("/proc/self/maps").value();
    size_t count = 0;
    for (size_t at = 0; (at = maps.find("hptrain-collectives", at)) != std::string::npos; ++at) {
      ++count;
    }
    return count;
  };
  test::on_every_rank(2, [&](const CommunicatorOptions& options) {
    const auto comm = carried_by(Carrier::kSharedMemory, options);
    test::take_part(*comm, [&](Communicator& connected) {
      std::ranges::fill(shared_floats(connected, 1000), 1.0F);
      EXPECT_GE(mappings(), 1U);
    });
  });
  EXPECT_EQ(mappings(), 0U);
}

}  // namespace
}  // namespace hpctl
