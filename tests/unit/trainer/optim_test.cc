// SPDX-License-Identifier: Apache-2.0
// Optimizer, schedule, clipping, initial values, rounding: against hand computation and theory.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "trainer/arch/initial_values.h"
#include "trainer/arch/registry.h"
#include "trainer/arch/rotary.h"
#include "trainer/data/batch_ramp.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/grad_norm.h"
#include "trainer/optim/loss_scaler.h"
#include "trainer/optim/schedule.h"
#include "trainer/parallel/bf16_rounding.h"

namespace hpctl {
namespace {

// One element through one update in double precision, from the formulas of adamw.h, and what its
// errors are relative to (optimizer.h).
struct ReferenceAdam {
  double p, m, v;
  double p_size = 0, m_size = 0;
  void step(const OptimizerSpec& spec, int t, double lr, double g, bool decayed) {
    m_size = spec.beta1 * std::abs(m) + (1 - spec.beta1) * std::abs(g);
    m = spec.beta1 * m + (1 - spec.beta1) * g;
    v = spec.beta2 * v + (1 - spec.beta2) * g * g;
    if (decayed) p *= 1 - lr * spec.weight_decay;
    const double rate = lr / (1 - std::pow(spec.beta1, t)) /
                        (std::sqrt(v) / std::sqrt(1 - std::pow(spec.beta2, t)) + spec.eps);
    p_size = std::abs(p) + rate * m_size;
    p -= rate * m;
  }
};

class Adam : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Decay, Adam, ::testing::Bool());

TEST_P(Adam, FollowsTheFormulas) {
  const bool decayed = GetParam();
  const OptimizerSpec spec;
  constexpr double kScale = 0.37;
  std::vector<float> p = {1.0F, -0.5F, 0.02F, 3.0F, 0.0F};
  std::vector<float> m(5, 0.0F);
  std::vector<float> v(5, 0.0F);
  std::vector<float> next_p(5), next_m(5), next_v(5);
  for (int t = 1; t <= 20; ++t) {
    const double lr = 1e-3 * t;
    std::vector<float> gradient;
    for (size_t i = 0; i < p.size(); ++i) {
      gradient.push_back(static_cast<float>(std::sin(t + static_cast<double>(i))));
    }
    adamw(AdamStep(spec, t, lr, kScale), decayed, 5,
          {p.data(), m.data(), v.data(), gradient.data()},
          {next_p.data(), next_m.data(), next_v.data()});
    for (size_t i = 0; i < p.size(); ++i) {
      ReferenceAdam expected = {p[i], m[i], v[i]};
      expected.step(spec, t, lr, kScale * static_cast<double>(gradient[i]), decayed);
      EXPECT_NEAR(next_p[i], expected.p, kAdamErrorFp32 * expected.p_size) << t << " " << i;
      EXPECT_NEAR(next_m[i], expected.m, kAdamErrorFp32 * expected.m_size) << t << " " << i;
      EXPECT_NEAR(next_v[i], expected.v, kAdamErrorFp32 * expected.v) << t << " " << i;
    }
    p.swap(next_p);
    m.swap(next_m);
    v.swap(next_v);
  }
}

TEST(Adam, Bf16MomentsAreTheRoundedOnes) {
  const std::vector<float> p = {1.0F, -0.5F}, m = {0.25F, -0.5F}, v = {0.5F, 0.125F};
  const std::vector<float> g = {0.3F, 0.7F};
  std::vector<float> wide_p(2), wide_m(2), wide_v(2), narrow_p(2);
  std::vector<uint16_t> m16(2), v16(2), next_m(2), next_v(2);
  round_to_bf16(m.data(), m16.data(), 2);
  round_to_bf16(v.data(), v16.data(), 2);
  const AdamStep step(OptimizerSpec{}, 3, 1e-2, 1.0);
  adamw(step, true, 2, {p.data(), m.data(), v.data(), g.data()},
        {wide_p.data(), wide_m.data(), wide_v.data()});
  adamw(step, true, 2, {p.data(), m16.data(), v16.data(), g.data()},
        {narrow_p.data(), next_m.data(), next_v.data()});
  EXPECT_EQ(narrow_p, wide_p) << "the moments before the step were exact in bf16";
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(next_m[i], bf16_of(wide_m[i]));
    EXPECT_EQ(next_v[i], bf16_of(wide_v[i]));
    EXPECT_NE(float_of_bf16(next_m[i]), wide_m[i]) << "the test must round";
  }
}

TEST(Adam, PaddingStaysZero) {
  const std::vector<float> zero(16, 0.0F);
  std::vector<float> p(16, 1.0F), m(16, 1.0F), v(16, 1.0F);
  adamw(AdamStep(OptimizerSpec{}, 1, 1e-3, 1.0), true, 16,
        {zero.data(), zero.data(), zero.data(), zero.data()}, {p.data(), m.data(), v.data()});
  EXPECT_EQ(p, zero);
  EXPECT_EQ(m, zero);
  EXPECT_EQ(v, zero);
}

TEST(Adam, BitsDoNotDependOnHowARangeIsCut) {
  const int n = 3000;
  std::vector<float> p(n), m(n), v(n), g(n);
  for (int i = 0; i < n; ++i) {
    p[i] = std::sin(i * 0.7F);
    m[i] = std::cos(i * 0.3F) * 0.1F;
    v[i] = std::abs(std::sin(i * 0.9F)) * 0.01F;
    g[i] = std::sin(i * 1.3F);
  }
  const AdamStep step(OptimizerSpec{}, 7, 3e-4, 0.37);
  std::vector<float> whole(3 * n), parts(3 * n);
  const auto run = [&](std::vector<float>& out, int begin, int count) {
    adamw(step, true, count, {&p[begin], &m[begin], &v[begin], &g[begin]},
          {&out[begin], &out[n + begin], &out[2 * n + begin]});
  };
  run(whole, 0, n);
  for (int i = 0; i < n; ++i) run(parts, i, 1);
  EXPECT_EQ(whole, parts);
}

TEST(GradNorm, SumOfSquaresInDoublePrecision) {
  for (const int64_t n : {0, 1, 15, 16, 17, 1000, 100'000}) {
    std::vector<float> x(static_cast<size_t>(n));
    long double expected = 0;
    for (int64_t i = 0; i < n; ++i) {
      x[i] = 1.0F + static_cast<float>(i) * 1e-4F;
      expected += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    const long double error = sum_of_squares(x.data(), n) - expected;
    EXPECT_LE(std::abs(error), sum_of_squares_error(n) * expected) << n;
  }
}

TEST(GradNorm, ClipFactor) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_NEAR(clip_factor(4.0, 1.0), 0.25, 1e-6);
  EXPECT_EQ(clip_factor(1e9, 0.0), 1.0) << "0 turns clipping off";
}

TEST(Schedule, WarmUpThenCosineToTheFloor) {
  TrainSpec spec;
  spec.steps = 110;
  spec.optimizer.lr = 1.0;
  spec.schedule.warmup_steps = 10;
  spec.schedule.min_lr_ratio = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate(spec, 1, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 10, 0), 1.0);
  // Half-way of the 101 virtual steps behind the warm-up lies between steps 60 and 61.
  EXPECT_NEAR((learning_rate(spec, 60, 0) + learning_rate(spec, 61, 0)) / 2, 0.55, 1e-9);
  EXPECT_GT(learning_rate(spec, 110, 0), 0.1);
  EXPECT_NEAR(learning_rate(spec, 110, 0), 0.1, 1e-3);
  for (uint64_t k = 11; k < 110; ++k) {
    EXPECT_GT(learning_rate(spec, k, 0), learning_rate(spec, k + 1, 0));
  }
}

TEST(Schedule, NeverZeroBeforeTheEnd) {
  TrainSpec spec;
  spec.steps = 5;
  spec.optimizer.lr = 1.0;
  spec.schedule.min_lr_ratio = 0;
  EXPECT_GT(learning_rate(spec, 5, 0), 0.0);
  spec.schedule.warmup_steps = 8;  // longer than the job
  EXPECT_DOUBLE_EQ(learning_rate(spec, 5, 0), 5.0 / 8.0);
}

TEST(Schedule, LinearAndConstant) {
  TrainSpec spec;
  spec.steps = 100;
  spec.optimizer.lr = 2.0;
  spec.schedule.min_lr_ratio = 0.5;
  spec.schedule.name = ScheduleShape::kConstant;
  EXPECT_DOUBLE_EQ(learning_rate(spec, 1, 0), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 100, 0), 2.0);
  spec.schedule.name = ScheduleShape::kLinear;
  spec.schedule.warmup_steps = 1;
  EXPECT_DOUBLE_EQ(learning_rate(spec, 1, 0), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 51, 0), 2.0 * (0.5 + 0.5 * 0.5));
  EXPECT_DOUBLE_EQ(learning_rate(spec, 100, 0), 2.0 * (0.5 + 0.5 * 0.01));
}

TEST(Schedule, WsdStaysAndThenDecays) {
  TrainSpec spec;
  spec.steps = 100;
  spec.optimizer.lr = 1.0;
  spec.schedule = {
      .name = ScheduleShape::kWsd, .warmup_steps = 10, .decay_steps = 24, .min_lr_ratio = 0};
  for (const uint64_t k : {10, 11, 50, 76}) EXPECT_DOUBLE_EQ(learning_rate(spec, k, 0), 1.0) << k;
  const std::vector<std::pair<DecayShape, double>> quarter = {
      {DecayShape::kLinear, 0.8},
      {DecayShape::kSqrt, 1 - std::sqrt(0.2)},
      {DecayShape::kCosine, (1 + std::cos(M_PI / 5)) / 2}};
  for (const auto& [decay, expected] : quarter) {
    spec.schedule.decay = decay;
    EXPECT_NEAR(learning_rate(spec, 81, 0), expected, 1e-12) << to_word(decay);
    EXPECT_GT(learning_rate(spec, 100, 0), 0.0) << to_word(decay);
  }
}

TEST(Schedule, CountsSamplesWhereItShould) {
  TrainSpec spec;
  spec.steps = 20;
  spec.batch.global = 10;
  spec.batch.ramp = {{.samples = 20, .global = 5}};
  ASSERT_EQ(samples_after(spec.batch, 20), 180U);
  spec.optimizer.lr = 1.0;
  spec.schedule = {.name = ScheduleShape::kLinear,
                   .unit = ScheduleUnit::kSamples,
                   .warmup_steps = 40,
                   .min_lr_ratio = 0};
  EXPECT_DOUBLE_EQ(learning_rate(spec, 1, 5), 0.125);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 6, 40), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 13, 115), 0.5) << "half of the 150 that follow";
  EXPECT_DOUBLE_EQ(learning_rate(spec, 20, 180), 10.0 / 150.0);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 20, 1000), 0.0) << "skipped samples push beyond the end";
}

TEST(LossScale, HalvesOnOverflowAndDoublesAfterGoodSteps) {
  TrainSpec train;
  EXPECT_EQ(first_loss_scale(train).scale, 0U) << "bf16 needs none";
  train.precision = Precision::kFp16;
  train.loss_scale = {.initial = 8, .growth_interval = 3, .hysteresis = 2, .min = 4};
  const LossScaleSpec& spec = train.loss_scale;
  LossScaleRecord record = first_loss_scale(train);
  EXPECT_EQ(record, (LossScaleRecord{.scale = 8, .good_steps = 0, .hysteresis_left = 2}));
  remember_good_step(spec, record);
  EXPECT_TRUE(lower_loss_scale(spec, record));
  EXPECT_EQ(record, (LossScaleRecord{8, 0, 1, 1})) << "the first overflow is forgiven";
  EXPECT_TRUE(lower_loss_scale(spec, record));
  EXPECT_EQ(record, (LossScaleRecord{4, 0, 1, 2}));
  EXPECT_FALSE(lower_loss_scale(spec, record)) << "the scale is not to blame";
  EXPECT_EQ(record, (LossScaleRecord{4, 0, 1, 2}));
  for (int i = 0; i < 3; ++i) remember_good_step(spec, record);
  EXPECT_EQ(record, (LossScaleRecord{8, 0, 2, 2})) << "and forgiving again";
  record.scale = kMaxLossScale;
  for (int i = 0; i < 3; ++i) remember_good_step(spec, record);
  EXPECT_EQ(record.scale, static_cast<uint64_t>(kMaxLossScale));
}

TEST(LossScale, OnlyAGradientOverflows) {
  const LossScaleRecord scaled = {.scale = 8};
  EXPECT_FALSE(is_overflow(scaled, 2.0, 1e30));
  EXPECT_TRUE(is_overflow(scaled, 2.0, HUGE_VAL));
  EXPECT_TRUE(is_overflow(scaled, 2.0, std::nan("")));
  EXPECT_FALSE(is_overflow(scaled, std::nan(""), std::nan(""))) << "no scale makes the loss finite";
  EXPECT_FALSE(is_overflow({}, 2.0, HUGE_VAL)) << "bf16 and fp32";
}

TEST(Ramp, DependsOnTheCursorAlone) {
  BatchSpec batch;
  batch.global = 16;
  batch.ramp = {{.samples = 10, .global = 4}, {.samples = 30, .global = 8}};
  std::vector<uint64_t> sizes;
  uint64_t cursor = 0;
  for (uint64_t step = 0; step < 8; ++step) {
    EXPECT_EQ(samples_after(batch, step), cursor);
    sizes.push_back(global_batch(batch, cursor));
    cursor += sizes.back();
  }
  EXPECT_EQ(sizes, (std::vector<uint64_t>{4, 4, 4, 8, 8, 8, 16, 16}));
}

void expect_parameters(const std::map<std::string, int64_t>& of_presets) {
  for (const auto& [name, count] : of_presets) {
    EXPECT_EQ(parameter_count(model_layout(*model_preset(name))), count) << name;
  }
}

TEST(Models, HaveAsManyParametersAsPublished) {
  expect_parameters({// TorchTitan's flavors (reference table of the design), Meta's model cards.
                     {"debugmodel", 6'163'712},
                     {"llama2-7b", 6'738'415'616},
                     {"llama2-13b", 13'015'864'320},
                     {"llama2-70b", 68'976'648'192},
                     {"llama3-8b", 8'030'261'248},
                     {"llama3-70b", 70'553'706'496},
                     {"llama3-405b", 405'853'388'800},
                     {"llama3.1-8b", 8'030'261'248},
                     {"llama3.2-1b", 1'235'814'400},
                     {"llama3.2-3b", 3'212'749'824}});
}

// As Hugging Face counts the elements of the published safetensors.
TEST(Models, ThoseOfLlamasKindHaveAsManyParametersAsPublished) {
  expect_parameters({{"qwen2.5-0.5b", 494'032'768},
                     {"qwen2.5-1.5b", 1'543'714'304},
                     {"qwen2.5-3b", 3'085'938'688},
                     {"qwen2.5-7b", 7'615'616'512},
                     {"qwen2.5-14b", 14'770'033'664},
                     {"qwen2.5-32b", 32'763'876'352},
                     {"qwen2.5-72b", 72'706'203'648},
                     {"qwen3-0.6b", 596'049'920},
                     {"qwen3-1.7b", 1'720'574'976},
                     {"qwen3-4b", 4'022'468'096},
                     {"qwen3-8b", 8'190'735'360},
                     {"qwen3-14b", 14'768'307'200},
                     {"qwen3-32b", 32'762'123'264},
                     {"mistral-7b", 7'241'732'096},
                     {"mistral-7b-v0.3", 7'248'023'552},
                     {"mistral-nemo-12b", 12'247'782'400}});
}

// The sizes of table 1 of the paper that model_presets.cc names, in billions, and its formula
// 12 l h^2 (1 + 13 / 12h + (V + s) / 12lh), which leaves the final norm out.
TEST(Models, GptsHaveAsManyParametersAsPublished) {
  const std::map<std::string, double> expected = {
      {"gpt3-1.7b", 1.7},   {"gpt3-3.6b", 3.6},   {"gpt3-7.5b", 7.5},     {"gpt3-18.4b", 18.4},
      {"gpt3-39.1b", 39.1}, {"gpt3-76.1b", 76.1}, {"gpt3-145.6b", 145.6}, {"gpt3-310b", 310.1}};
  for (const auto& [name, billions] : expected) {
    const ModelSpec m = *model_preset(name);
    const int64_t count = parameter_count(model_layout(m));
    EXPECT_NEAR(static_cast<double>(count) * 1e-9, billions, 0.05) << name;
    EXPECT_EQ(count - 2 * m.dim, 12 * m.layers * m.dim * m.dim + 13 * m.layers * m.dim +
                                     (m.vocab + m.max_positions) * m.dim);
  }
  // GPT-2 small, as transformers counts it.
  ModelSpec gpt2 = *model_preset("tiny-gpt");
  gpt2.dim = 768;
  gpt2.layers = 12;
  gpt2.heads = gpt2.kv_heads = 12;
  gpt2.ffn = 3072;
  gpt2.vocab = 50257;
  gpt2.max_positions = 1024;
  EXPECT_EQ(parameter_count(model_layout(gpt2)), 124'439'808);
}

// From Hugging Face's formula, by hand: 8192 / wavelength decides.
TEST(Models, Llama31ScalesSlowRotations) {
  const ModelSpec plain = *model_preset("llama3-8b");
  const ModelSpec scaled = *model_preset("llama3.1-8b");
  const std::vector<double> before = rotary_frequencies(plain);
  const std::vector<double> after = rotary_frequencies(scaled);
  ASSERT_EQ(after.size(), 64U);
  EXPECT_DOUBLE_EQ(before[1], std::pow(500000.0, -2.0 / 128));
  int kept = 0;
  int divided = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    const double wavelength = 2 * M_PI / before[i];
    const double smooth = (8192 / wavelength - 1) / 3;
    if (wavelength < 2048) {
      EXPECT_DOUBLE_EQ(after[i], before[i]) << i;
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_DOUBLE_EQ(after[i], before[i] / 8) << i;
      ++divided;
    } else {
      EXPECT_NEAR(after[i], (1 - smooth) * before[i] / 8 + smooth * before[i], 1e-15) << i;
    }
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(divided, 29);
}

TEST(NoDecay, ByGroup) {
  const ModelSpec model = *model_preset("tiny");
  std::vector<Block> blocks = model_layout(model);
  const auto exempt = [&] {
    std::vector<std::string> names;
    for (const Block& block : blocks) {
      for (const TensorSlot& t : block.tensors) {
        if (t.no_decay) names.push_back(t.name);
      }
    }
    return names;
  };
  const std::vector<std::string> norms = exempt();
  EXPECT_EQ(norms.size(), 5U);
  set_no_decay(model, blocks, {DecayGroup::kNorms, DecayGroup::kBiases});
  EXPECT_EQ(exempt(), norms) << "the default";
  set_no_decay(model, blocks, {DecayGroup::kEmbeddings});
  EXPECT_EQ(exempt(), std::vector<std::string>{"model.embed_tokens.weight"});
  set_no_decay(model, blocks, {});
  EXPECT_TRUE(exempt().empty());
}

TEST(NoDecay, OfHeadsNormsAndBiases) {
  const auto exempt = [](const char* preset, DecayGroup group) {
    const ModelSpec model = *model_preset(preset);
    Block layer = model_layout(model)[1];
    std::vector<Block> blocks = {layer};
    set_no_decay(model, blocks, {group});
    std::string names;
    for (const TensorSlot& t : blocks[0].tensors) {
      if (t.no_decay) names += t.name.substr(std::string("model.layers.0.").size()) + " ";
    }
    return names;
  };
  const std::string norms = "input_layernorm.weight post_attention_layernorm.weight ";
  EXPECT_EQ(exempt("tiny-qwen2", DecayGroup::kNorms), norms);
  EXPECT_EQ(exempt("tiny-qwen2", DecayGroup::kBiases),
            "self_attn.q_proj.bias self_attn.k_proj.bias self_attn.v_proj.bias ");
  EXPECT_EQ(exempt("tiny-qwen3", DecayGroup::kNorms),
            "input_layernorm.weight self_attn.q_norm.weight self_attn.k_norm.weight "
            "post_attention_layernorm.weight ");
  EXPECT_EQ(exempt("tiny-mistral", DecayGroup::kNorms), norms);
  EXPECT_EQ(exempt("tiny-mistral", DecayGroup::kBiases), "");
}

TEST(NoDecay, ByGroupOfAGpt) {
  const ModelSpec model = *model_preset("tiny-gpt");
  std::vector<Block> blocks = model_layout(model);
  const auto decaying = [&](std::vector<DecayGroup> groups) {
    set_no_decay(model, blocks, groups);
    std::string names;
    for (const size_t b : {size_t{0}, size_t{1}, blocks.size() - 1}) {
      for (const TensorSlot& t : blocks[b].tensors) {
        if (!t.no_decay) names += t.name.substr(t.name.find('.') + 1) + " ";
      }
    }
    return names;
  };
  const std::string matrices =
      "h.0.attn.c_attn.weight h.0.attn.c_proj.weight h.0.mlp.c_fc.weight h.0.mlp.c_proj.weight ";
  EXPECT_EQ(decaying({DecayGroup::kNorms, DecayGroup::kBiases}),
            "wte.weight wpe.weight " + matrices);
  EXPECT_EQ(decaying({DecayGroup::kNorms, DecayGroup::kBiases, DecayGroup::kEmbeddings}), matrices);
  EXPECT_EQ(decaying({DecayGroup::kBiases, DecayGroup::kEmbeddings}),
            "h.0.ln_1.weight h.0.attn.c_attn.weight h.0.attn.c_proj.weight h.0.ln_2.weight "
            "h.0.mlp.c_fc.weight h.0.mlp.c_proj.weight ln_f.weight ");
}

TEST(Bf16, RoundsToNearestEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto rounded = [](float x) {
    uint16_t bits = 0;
    round_to_bf16(&x, &bits, 1);
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  };
  EXPECT_EQ(rounded(1.0F), 1.0F);
  EXPECT_EQ(rounded(1.0F + 0x1p-8F), 1.0F) << "tie to even, down";
  EXPECT_EQ(rounded(1.0F + 0x1p-7F + 0x1p-8F), 1.0F + 0x1p-6F) << "tie to even, up";
  EXPECT_EQ(rounded(1.0F + 0x1p-8F + 0x1p-20F), 1.0F + 0x1p-7F);
  EXPECT_EQ(rounded(-infinity), -infinity);
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), infinity);
  EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0x7f800001U))));
}

TEST(InitialValues, QuantileInvertsTheNormalDistribution) {
  for (const double p : {1e-12, 1e-5, 0.02, 0.0243, 0.3, 0.5, 0.77, 0.976, 0.9999}) {
    const double z = normal_quantile(p);
    EXPECT_NEAR(0.5 * std::erfc(-z / std::sqrt(2.0)), p, 2e-9 * (1 + z * z) * p) << p;
  }
}

class Presets : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(InitialValues, Presets,
                         ::testing::Values("tiny", "tiny-gpt", "tiny-qwen2", "tiny-qwen3"));

TEST_P(Presets, DoNotDependOnTheWorld) {
  const ModelSpec model = *model_preset(GetParam());
  for (const Block& block : model_layout(model)) {
    std::vector<float> whole(block.numel);
    fill_initial_values(model, block, 7, {0, block.numel}, whole.data());
    for (const int32_t world : {2, 3, 8}) {
      const int64_t capacity = shard_capacity(block.numel, world);
      std::vector<float> all(capacity * world, -1.0F);
      for (int32_t r = 0; r < world; ++r) {
        fill_initial_values(model, block, 7, {capacity * r, capacity * (r + 1)},
                            all.data() + capacity * r);
      }
      for (int64_t i = 0; i < block.numel; ++i) ASSERT_EQ(all[i], whole[i]);
      for (size_t i = block.numel; i < all.size(); ++i) ASSERT_EQ(all[i], 0.0F) << "padding";
    }
  }
}

std::vector<float> initial_values(const ModelSpec& model, const Block& block) {
  std::vector<float> values(block.numel);
  fill_initial_values(model, block, 1, {0, block.numel}, values.data());
  return values;
}

// Mean 0, the standard deviation, and nothing larger than `most`.
void expect_distribution(const ModelSpec& model, const Block& block, const std::string& suffix,
                         double expected_std, double most) {
  const std::vector<float> values = initial_values(model, block);
  for (const TensorSlot& tensor : block.tensors) {
    if (!tensor.name.ends_with(suffix)) continue;
    double sum = 0;
    double squares = 0;
    double largest = 0;
    for (int64_t i = 0; i < tensor.numel; ++i) {
      const double x = values[tensor.offset + i];
      sum += x;
      squares += x * x;
      largest = std::max(largest, std::abs(x));
    }
    const auto n = static_cast<double>(tensor.numel);
    EXPECT_NEAR(sum / n, 0, 5 * expected_std / std::sqrt(n)) << tensor.name;
    EXPECT_NEAR(std::sqrt(squares / n), expected_std, 0.01 * expected_std) << tensor.name;
    EXPECT_LE(largest, most) << tensor.name;
    return;
  }
  FAIL() << "no tensor " << suffix;
}

TEST(InitialValues, FollowTheRulesOfAGpt) {
  ModelSpec model = *model_preset("tiny-gpt");
  model.dim = 256;
  model.ffn = 1024;
  model.layers = 6;
  model.tied_embeddings = false;
  const std::vector<Block> blocks = model_layout(model);
  expect_distribution(model, blocks[0], "wte.weight", 0.02, 0.14);
  expect_distribution(model, blocks[0], "wpe.weight", 0.02, 0.14);
  expect_distribution(model, blocks[1], "c_attn.weight", 0.02, 0.14);
  expect_distribution(model, blocks[2], "c_fc.weight", 0.02, 0.14);
  for (const size_t layer : {size_t{1}, size_t{6}}) {
    expect_distribution(model, blocks[layer], "attn.c_proj.weight", 0.02 / std::sqrt(12.0), 0.05);
    expect_distribution(model, blocks[layer], "mlp.c_proj.weight", 0.02 / std::sqrt(12.0), 0.05);
  }
  expect_distribution(model, blocks[7], "lm_head.weight", 0.02, 0.14);
  const std::vector<float> values = initial_values(model, blocks[1]);
  for (const TensorSlot& tensor : blocks[1].tensors) {
    if (tensor.shape.size() > 1) continue;
    const float expected = tensor.name.ends_with(".bias") ? 0 : 1;
    for (int64_t i = 0; i < tensor.numel; ++i) ASSERT_EQ(values[tensor.offset + i], expected);
  }
}

TEST(InitialValues, FollowTheRules) {
  const ModelSpec model = *model_preset("debugmodel");
  const std::vector<Block> blocks = model_layout(model);
  const auto check = [&](size_t b, const std::string& suffix, double expected_std, double most) {
    expect_distribution(model, blocks[b], suffix, expected_std, most);
  };
  check(0, "embed_tokens.weight", 1.0, 7);
  check(1, "q_proj.weight", 0.02, 0.14);
  check(1, "down_proj.weight", 0.02 / std::sqrt(2.0), 0.1);
  check(6, "o_proj.weight", 0.02 / std::sqrt(12.0), 0.05);
  // Truncation at three standard deviations narrows the distribution by 0.98658.
  check(7, "lm_head.weight", 0.98658 / 16.0, 3.0 / 16.0);
  EXPECT_EQ(initial_values(model, blocks[7])[0], 1.0F) << "norms start at one";
}

TEST(InitialValues, SeedsAndTensorsDiffer) {
  const ModelSpec model = *model_preset("tiny");
  const Block block = model_layout(model)[1];
  std::vector<float> a(block.numel), b(block.numel);
  fill_initial_values(model, block, 1, {0, block.numel}, a.data());
  fill_initial_values(model, block, 2, {0, block.numel}, b.data());
  EXPECT_NE(a, b);
  const int64_t k = block.tensors[2].offset;
  const int64_t v = block.tensors[3].offset;
  EXPECT_NE(a[k], a[v]);
}

}  // namespace
}  // namespace hpctl
