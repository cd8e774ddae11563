// SPDX-License-Identifier: Apache-2.0
// Messages between the stages of a pipeline, over both kinds of transport: each stage has an order
// of its own, and each edge keeps the order of its sender.
#include "trainer/comm/stage_edges.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/layout/mesh.h"
#include "tests/unit/trainer/comm_world.h"

namespace hpctl {
namespace {

constexpr std::array kEdges = {StageEdge{0, 1}, StageEdge{1, 2}, StageEdge{2, 1}, StageEdge{1, 0}};
constexpr int kMicroBatches = 4;

// More than all slots of a rank hold, in the middle.
std::vector<std::byte> activation(int micro) {
  const size_t bytes = micro == 1 ? 9'000'000 : 1'000 + static_cast<size_t>(micro);
  return std::vector<std::byte>(bytes, static_cast<std::byte>('a' + micro));
}
std::vector<std::byte> gradient(int micro) {
  return std::vector<std::byte>(77, static_cast<std::byte>('A' + micro));
}

// What one stage sends, until its end.
class StageSends {
 public:
  explicit StageSends(StageEdges& edges) : edges_(edges) {}

  void send(int32_t to, std::vector<std::byte> bytes) {
    // Where there is shared memory, every second message lies there.
    void* shared = sent_.size() % 2 == 0 ? edges_.allocate(to, bytes.size()) : nullptr;
    std::span<const std::byte> outgoing = kept_.emplace_back(std::move(bytes));
    if (shared != nullptr) {
      std::memcpy(shared, outgoing.data(), outgoing.size());
      outgoing = {static_cast<const std::byte*>(shared), outgoing.size()};
      shared_.push_back({to, outgoing});
    }
    auto begun = edges_.begin_send(to, outgoing);
    ASSERT_TRUE(begun.ok());
    sent_.push_back(std::move(*begun));
  }
  void expect_from(int32_t from, const std::vector<std::byte>& expected) {
    std::vector<std::byte> incoming(expected.size());
    auto begun = edges_.begin_receive(from, incoming);
    ASSERT_TRUE(begun.ok());
    const Outcome received = (*begun)->wait();
    ASSERT_TRUE(received.ok()) << received.error().message;
    EXPECT_TRUE(incoming == expected) << from;
  }
  void finish() {
    for (const CollectivePtr& send : sent_) ASSERT_TRUE(send->wait().ok());
    for (const auto& [to, bytes] : shared_) ASSERT_TRUE(edges_.await_reader(to, bytes).ok());
  }

 private:
  StageEdges& edges_;
  std::vector<std::vector<std::byte>> kept_;
  std::vector<std::pair<int32_t, std::span<const std::byte>>> shared_;
  std::vector<CollectivePtr> sent_;
};

void run_stage(int stage, StageSends& messages) {
  for (int micro = 0; micro < kMicroBatches; ++micro) {
    if (stage > 0) messages.expect_from(stage - 1, activation(micro));
    if (stage < 2) messages.send(stage + 1, activation(micro));
    // The last stage goes back at once; the others first go on forward.
    if (stage == 2) messages.send(1, gradient(micro));
  }
  for (int micro = 0; stage < 2 && micro < kMicroBatches; ++micro) {
    messages.expect_from(stage + 1, gradient(micro));
    if (stage == 1) messages.send(0, gradient(micro));
  }
}

class EdgesOf : public ::testing::TestWithParam<Carrier> {
 protected:
  static Result<StageEdges> make(const CommunicatorOptions& options, const Mesh& mesh) {
    return StageEdges::create(options, mesh, kEdges, [](const CommunicatorOptions& edge) {
      return Result<std::unique_ptr<Communicator>>(test::carried_by(GetParam(), edge));
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Both, EdgesOf, ::testing::Values(Carrier::kSharedMemory, Carrier::kGloo),
                         [](const auto& tested) { return test::name_of(tested.param); });

// Two pipelines beside each other, of ranks 0, 2, 4 and 1, 3, 5.
TEST_P(EdgesOf, MessagesArriveInTheOrderOfTheirSender) {
  const Mesh mesh({{"pp", 3}, {"tp", 2}});
  test::on_every_rank(mesh.world_size(), [&](const CommunicatorOptions& options) {
    const auto world = test::carried_by(GetParam(), options);
    ASSERT_TRUE(world->connect().ok());
    Result<StageEdges> edges = make(options, mesh);
    ASSERT_TRUE(edges.ok());
    const Outcome met = edges->connect();
    ASSERT_TRUE(met.ok()) << met.error().message;
    StageSends messages(*edges);
    run_stage(mesh.coordinate(options.rank, MeshDim::kPp), messages);
    messages.finish();
    ASSERT_TRUE(world->barrier().ok());
  });
}

TEST_P(EdgesOf, AStageThatIsCutEndsTheWaitForIt) {
  const Mesh mesh({{"pp", 3}});
  test::on_every_rank(3, [&](const CommunicatorOptions& options) {
    Result<StageEdges> edges = make(options, mesh);
    ASSERT_TRUE(edges.ok() && edges->connect().ok());
    if (options.rank == 1) {
      ASSERT_TRUE(edges->suffer(PeerTrouble::kCut).ok());
      return;
    }
    std::vector<std::byte> incoming(8);
    const auto begun = edges->begin_receive(1, incoming);
    const Outcome outcome = begun.ok() ? (*begun)->wait() : Outcome(begun.error());
    ASSERT_FALSE(outcome.ok()) << options.rank;
    EXPECT_EQ(outcome.error().code, kPeerLost);
  });
}

TEST_P(EdgesOf, AnAbortEndsThem) {
  const Mesh mesh({{"pp", 3}});
  test::on_every_rank(3, [&](const CommunicatorOptions& options) {
    Result<StageEdges> edges = make(options, mesh);
    ASSERT_TRUE(edges.ok() && edges->connect().ok());
    edges->abort();
    if (options.rank == 1) return;
    std::vector<std::byte> incoming(8);
    const auto begun = edges->begin_receive(1, incoming);
    const Outcome outcome = begun.ok() ? (*begun)->wait() : Outcome(begun.error());
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.error().code, kPeerLost);
  });
}

}  // namespace
}  // namespace hpctl
