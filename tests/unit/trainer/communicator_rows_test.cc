// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism over the communicators that processes use: the same bits as the exchange of
// the other tests, whatever carries the messages.
#include "trainer/parallel/communicator_rows.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/unit/trainer/comm_world.h"
#include "tests/unit/trainer/tensor_ranks.h"

namespace hpctl::testing {
namespace {

TensorCase small_case() {
  TensorCase c = {"Llama", {}};
  c.model.arch = Arch::llama;
  c.model.vocab = 101;
  c.model.dim = 32;
  c.model.layers = 2;
  c.model.heads = 4;
  c.model.kv_heads = 2;
  c.model.ffn = 48;
  return c;
}

std::vector<StepResult> steps_over(Carrier carrier, const TensorCase& c, const TensorMap& values,
                                   int ranks) {
  const TensorBatch batch = random_batch(c);
  const TemporaryDirectory dir;
  std::vector<StepResult> steps(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto comm = test::carried_by(carrier, test::options_for(dir, rank, ranks));
      const Outcome met = comm->connect();
      ASSERT_TRUE(met.ok()) << met.error().message;
      CommunicatorRows exchange(*comm);
      Result<StepResult> step = rank_step(c, values, batch, Keep::kInput, exchange);
      ASSERT_TRUE(step.ok()) << step.error().message;
      steps[static_cast<size_t>(rank)] = std::move(*step);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return steps;
}

void expect_same(const StepResult& found, const StepResult& expected) {
  EXPECT_EQ(found.entropy, expected.entropy);
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (const auto& [tensor, gradient] : expected.gradients) {
    EXPECT_TRUE(at::equal(found.gradients.at(tensor), gradient)) << tensor;
  }
}

// 69 rows on 4 ranks, so that ranks have different numbers of rows.
TEST(CommunicatorRows, EveryCarrierGivesTheSameBits) {
  const TensorCase c = small_case();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const TensorMap values = values_in(c, type);
    const std::vector<StepResult> expected = steps_of_ranks(c, values, 4);
    for (const Carrier carrier : {Carrier::kSharedMemory, Carrier::kHierarchical, Carrier::kGloo}) {
      const std::vector<StepResult> found = steps_over(carrier, c, values, 4);
      for (size_t rank = 0; rank < found.size(); ++rank) expect_same(found[rank], expected[rank]);
    }
  }
}

// 256 + 1 is no number of bf16: rounded at each addition, the sum would be 256.
TEST(CommunicatorRows, Bf16IsAddedInFp32) {
  const TemporaryDirectory dir;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto comm = test::carried_by(Carrier::kSharedMemory, test::options_for(dir, rank, 3));
      ASSERT_TRUE(comm->connect().ok());
      CommunicatorRows exchange(*comm);
      const auto sum = exchange.sum_rows(at::full({4, 2}, rank == 0 ? 256.0 : 1.0, at::kBFloat16));
      ASSERT_TRUE(sum.ok());
      EXPECT_TRUE(at::equal(*sum, at::full({rank == 2 ? 2 : 1, 2}, 258.0, at::kBFloat16))) << rank;
      ASSERT_TRUE(comm->barrier().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Even rows travel without a copy of what is sent.
TEST(CommunicatorRows, EvenRowsComeInOrder) {
  const TemporaryDirectory dir;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto comm = test::carried_by(Carrier::kSharedMemory, test::options_for(dir, rank, 2));
      ASSERT_TRUE(comm->connect().ok());
      CommunicatorRows exchange(*comm);
      const at::Tensor whole = at::arange(12, at::kFloat).view({4, 3});
      const auto rows = exchange.gather_rows(whole.narrow(0, 2 * rank, 2), 4);
      ASSERT_TRUE(rows.ok());
      EXPECT_TRUE(at::equal(*rows, whole));
      const auto sum = exchange.sum_rows(whole);
      ASSERT_TRUE(sum.ok());
      EXPECT_TRUE(at::equal(*sum, whole.narrow(0, 2 * rank, 2) * 2));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hpctl::testing
