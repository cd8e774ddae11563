// SPDX-License-Identifier: Apache-2.0
// The loss of answers is the mean over all that are learnt in a step's batch, however it is divided
// among ranks and micro-batches: in fp64, where rounding hides nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/unit/data/answer_data.h"
#include "trainer/arch/initial_values.h"
#include "trainer/arch/model.h"
#include "trainer/arch/registry.h"
#include "trainer/arch/targets.h"
#include "trainer/data/step_samples.h"
#include "trainer/loop/batch_reader.h"

namespace hpctl {
namespace {

constexpr uint64_t kStepSamples = 12;
constexpr int64_t kWindow = 24;

TrainSpec tiny_on(const std::string& data) {
  TrainSpec train;
  train.model = *model_preset("tiny");
  train.data.path = data;
  train.data.format = DataFormat::kSft;
  train.data.seq_len = kWindow;
  return train;
}

// One step of a job: the sum of the loss and of its gradient over any part of the step's samples.
class Step {
 public:
  Step() {
    test::put_answers(dir_ / "sums", test::sums(60));
    auto opened = SampleReader::open(train_.data, 3, 256);
    HP_CHECK(opened.ok());
    reader_ = std::make_unique<SampleReader>(std::move(opened).value());
    for (const Block& block : model_layout(train_.model)) {
      std::vector<float> flat(static_cast<size_t>(block.numel));
      fill_initial_values(train_.model, block, 3, {0, block.numel}, flat.data());
      blocks_.emplace_back();
      for (const TensorSlot& slot : block.tensors) {
        at::Tensor leaf =
            at::from_blob(flat.data() + slot.offset, slot.shape, at::kFloat).to(at::kDouble);
        leaf.set_requires_grad(true);
        blocks_.back().push_back(leaf);
      }
    }
  }

  std::vector<MicroBatch> batches(int32_t rank, int32_t world, int64_t micro) const {
    const StepSamples samples = take_samples(0, kStepSamples, {});
    auto read =
        read_micro_batches(*reader_, sample_numbers(data_part(samples.ranges, rank, world)), micro,
                           micro_batches(kStepSamples, world, static_cast<uint64_t>(micro)));
    HP_CHECK(read.ok());
    return *read;
  }

  // Adds the gradient of the loss * scale; the loss.
  double add(const MicroBatch& batch, double scale) {
    at::Tensor x = model_->embed(blocks_.front(), batch.tokens, batch.documents);
    for (size_t b = 1; b + 1 < blocks_.size(); ++b) {
      x = model_->layer(blocks_[b], x, batch.documents);
    }
    const Model::Loss loss = model_->loss(model_->logits(blocks_.back(), x), batch.targets);
    compat::backward(loss.objective * scale, {});
    return loss.entropy.item<double>();
  }

  // All elements of the gradient, times `factor`; it begins anew.
  std::vector<double> take_gradient(double factor) {
    std::vector<double> all;
    for (std::vector<at::Tensor>& block : blocks_) {
      for (at::Tensor& leaf : block) {
        const at::Tensor flat = (leaf.grad() * factor).contiguous();
        all.insert(all.end(), flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
        leaf.mutable_grad() = at::Tensor();
      }
    }
    return all;
  }

 private:
  TemporaryDirectory dir_;
  TrainSpec train_ = tiny_on(dir_ / "sums");
  std::unique_ptr<SampleReader> reader_;
  std::unique_ptr<Model> model_ = make_model(train_, at::kDouble);
  std::vector<std::vector<at::Tensor>> blocks_;
};

double worst(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  double difference = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    largest = std::max(largest, std::abs(b[i]));
    difference = std::max(difference, std::abs(a.at(i) - b[i]));
  }
  return difference / largest;
}

TEST(AnswerLoss, IsTheSameHoweverTheBatchIsDivided) {
  Step step;
  const std::vector<MicroBatch> whole = step.batches(0, 1, kStepSamples);
  ASSERT_EQ(whole.size(), 1U);
  const auto counted = static_cast<double>(whole[0].counted);
  EXPECT_LT(counted, kStepSamples * kWindow / 2) << "most is prompts";
  const double loss = step.add(whole[0], 1 / counted) / counted;
  const std::vector<double> gradient = step.take_gradient(1);
  for (const int32_t world : {1, 2, 3, 5}) {
    for (const int64_t micro : {1, 2, 4}) {
      // As Generation::compute_gradients() and reduce() do it.
      constexpr double kTokens = kStepSamples * kWindow;
      double sum = 0;
      double tokens = 0;
      double mean_of_means = 0;
      double parts = 0;
      for (int32_t rank = 0; rank < world; ++rank) {
        for (const MicroBatch& batch : step.batches(rank, world, micro)) {
          EXPECT_EQ(batch.counted, batch.targets.ne(kNotCounted).sum().item<int64_t>());
          const double part = step.add(batch, 1 / kTokens);
          sum += part;
          tokens += static_cast<double>(batch.counted);
          if (batch.counted == 0) continue;
          mean_of_means += part / static_cast<double>(batch.counted);
          parts += 1;
        }
      }
      EXPECT_EQ(tokens, counted);
      EXPECT_NEAR(sum / tokens, loss, 1e-12 * loss) << world << " ranks, micro " << micro;
      EXPECT_LT(worst(step.take_gradient(kTokens / tokens), gradient), 1e-12);
      EXPECT_GT(std::abs(mean_of_means / parts - loss), 1e-4 * loss)
          << "what the sum over the batch is not";
    }
  }
}

TEST(AnswerLoss, CountsAnswersAlone) {
  const std::vector<MicroBatch> whole = Step().batches(0, 1, kStepSamples);
  const at::Tensor targets = whole[0].targets.flatten();
  for (int64_t i = 0; i < targets.numel(); ++i) {
    const auto target = targets[i].item<int64_t>();
    EXPECT_TRUE(target == kNotCounted || target == '!' || (target >= 'A' && target <= 'Z'))
        << target;
  }
}

}  // namespace
}  // namespace hpctl
