// SPDX-License-Identifier: Apache-2.0
// What a run says about itself: the counting of operations, event files that an independent reader
// understands, traces.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/rng.h"
#include "tests/support/program_output.h"
#include "tests/support/temporary_directory.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/registry.h"
#include "trainer/metrics/evaluation_record.h"
#include "trainer/metrics/event_file.h"
#include "trainer/metrics/metrics_writer.h"
#include "trainer/metrics/step_times.h"
#include "trainer/metrics/trace.h"
#include "trainer/plan/gpu_models.h"

namespace hpctl {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kReader =
    "/usr/bin/python3 " HPCTL_SOURCE "/tests/unit/trainer/read_events.py ";

std::vector<json> read_lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

// The table of TorchTitan's Llama-3 flavors at 8192 tokens, in GFLOP.
TEST(Flops, AreThoseThatTheFieldPublishes) {
  const auto giga = [](const char* preset) {
    const ModelSpec model = *model_preset(preset);
    const FlopsPerToken flops = flops_per_token(model, model_layout(model), 8192);
    return std::pair(flops.whole * 1e-9, flops.causal * 1e-9);
  };
  EXPECT_NEAR(giga("llama3-8b").first, 57.91, 0.005);
  EXPECT_NEAR(giga("llama3-8b").second, 51.47, 0.005);
  EXPECT_NEAR(giga("llama3-70b").first, 481.4, 0.05);
  EXPECT_NEAR(giga("llama3-70b").second, 449.2, 0.05);
  EXPECT_NEAR(giga("llama3-405b").first, 2625, 0.5);
  EXPECT_NEAR(giga("llama3-405b").second, 2524, 0.5);
}

// Megatron-LM's formula without recomputation, and what biases and norms add.
TEST(Flops, OfAGptAreThoseOfMegatronsFormula) {
  for (const char* preset : {"gpt3-1.7b", "gpt3-18.4b", "gpt3-310b"}) {
    const ModelSpec m = *model_preset(preset);
    const auto l = static_cast<double>(m.layers);
    const auto h = static_cast<double>(m.dim);
    const auto v = static_cast<double>(m.vocab);
    const double expected = 72 * l * h * h * (1 + 2048 / (6 * h) + v / (12 * l * h));
    const FlopsPerToken flops = flops_per_token(m, model_layout(m), 2048);
    EXPECT_NEAR(flops.whole, expected + 6 * (13 * l * h + 2 * h), 1) << preset;
    EXPECT_NEAR(flops.whole / expected, 1, 1e-3) << preset;
    EXPECT_NEAR(flops.whole - flops.causal, 6 * l * h * 2048, 1) << preset;
  }
}

// Two operations for each score and each of its products with a value, three times: forward, and
// backward for both operands; as wide as the heads together, which may be more than dim. With a
// window, as many scores as there are pairs of a token and one that it sees.
TEST(Flops, CountHeadsAndWindows) {
  const auto attention_of = [](const char* preset, int64_t tokens) {
    const ModelSpec m = *model_preset(preset);
    const std::vector<Block> blocks = model_layout(m);
    const FlopsPerToken flops = flops_per_token(m, blocks, tokens);
    const int64_t tables = m.tied_embeddings ? 0 : m.vocab * m.dim;
    const double matrices = 6.0 * static_cast<double>(parameter_count(blocks) - tables);
    const double of_score = 12.0 * static_cast<double>(m.layers * m.heads * m.head_size());
    return std::pair((flops.whole - matrices) / of_score, (flops.causal - matrices) / of_score);
  };
  EXPECT_EQ(model_preset("qwen3-0.6b")->head_size() * 16, 2048) << "dim is 1024";
  EXPECT_NEAR(attention_of("qwen3-0.6b", 4096).first, 4096, 1e-6);
  EXPECT_NEAR(attention_of("qwen3-0.6b", 4096).second, 2048, 1e-6);
  EXPECT_NEAR(attention_of("mistral-7b", 4096).second, 2048, 1e-6) << "all are in the window";
  int64_t pairs = 0;
  for (int64_t t = 0; t < 16384; ++t) pairs += std::min<int64_t>(t + 1, 4096);
  EXPECT_NEAR(attention_of("mistral-7b", 16384).first, 4096, 1e-6);
  EXPECT_NEAR(attention_of("mistral-7b", 16384).second, static_cast<double>(pairs) / 16384, 0.5)
      << "the diagonal counts as half, as everywhere";
}

// Llama 3 70B with adapters of rank 16 on its seven matrices, of 80 layers: a frozen parameter has
// no gradient of its own, so it takes 2 operations forward and 2 backward; attention, which has no
// parameters, what it always takes.
TEST(Flops, FrozenParametersTakeFourOperationsAndAdaptersSix) {
  TrainSpec train;
  train.model = *model_preset("llama3-70b");
  train.lora.rank = 16;
  const std::vector<Block> adapters = trained_layout(train);
  const double trained = 80 * 16 * (2 * (8192 + 8192.0) + 2 * (8192 + 1024) + 3 * (8192 + 28672));
  ASSERT_EQ(static_cast<double>(parameter_count(adapters)), trained);
  const double layer =
      2 * 8192.0 * 8192 + 2 * 8192.0 * 1024 + 3 * 8192.0 * 28672 + 2 * 8192 /* norms */;
  const double frozen = 80 * layer + 8192 + 8192.0 * 128256;  // the embedding is looked up
  const double pairs = 80 * 8192.0 * 512;
  const FlopsPerToken flops = flops_per_token(train.model, adapters, 512, train.lora);
  EXPECT_NEAR(flops.whole, 4 * frozen + 6 * trained + 12 * pairs, 1);
  EXPECT_NEAR(flops.causal, 4 * frozen + 6 * trained + 6 * pairs, 1);
  EXPECT_NEAR(flops.forward, 2 * frozen + 2 * trained + 4 * pairs, 1);
  const FlopsPerToken whole = flops_per_token(train.model, model_layout(train.model), 512);
  EXPECT_NEAR(whole.forward, 2 * frozen + 4 * pairs, 1);
  EXPECT_NEAR(whole.whole, 3 * whole.forward, 1);
}

TEST(Flops, MfuIsTheShareOfTheDevicesPeak) {
  const ModelSpec model = *model_preset("llama3-8b");
  // AWS' figures for TorchTitan on p5: 6,785 tokens/s per H100 are 39.73 %.
  const Throughput t{.flops = flops_per_token(model, model_layout(model), 8192),
                     .world_size = 32,
                     .peak_flops = find_gpu_model("h100")->peak_flops};
  const StepMetrics m{.tokens = 6785 * 32, .step_s = 1};
  EXPECT_NEAR(t.mfu_percent(t.tflops(m)), 39.73, 0.01);
  EXPECT_LT(t.mfu_percent(t.tflops_causal(m)), 36);
  EXPECT_THAT(console_line(m, t), HasSubstr("mfu 39.7/35.3 %"));
  EXPECT_THAT(console_line(m, Throughput{.flops = t.flops}), testing::Not(HasSubstr("mfu")))
      << "none where the peak is unknown";
}

TEST(Overlap, IsTheShareOfCommunicationThatNobodyWaitedFor) {
  StepMetrics m{.tokens = 1, .step_s = 1, .comm_s = 0.1, .comm_under_way_s = 0.4};
  EXPECT_THAT(console_line(m, {}), HasSubstr("comm 10.0 % overlap 75.0 %"));
  const StepFigures figures = figures_of(m, {});
  EXPECT_DOUBLE_EQ(overlap_share(figures.communication_ns, figures.communication_wait_ns), 0.75);
  EXPECT_EQ(overlap_share(0.1, 0.4), 0) << "copies at the edges are waited for as well";
  m.comm_under_way_s = 0;
  EXPECT_THAT(console_line(m, {}), testing::Not(HasSubstr("overlap"))) << "one rank has no peers";
}

TEST(Devices, AreKnownByTheNamesThatDriversReport) {
  EXPECT_EQ(gpu_model_of_product("NVIDIA H100 80GB HBM3")->name, "h100");
  EXPECT_EQ(gpu_model_of_product("NVIDIA H100 PCIe")->name, "h100-pcie");
  EXPECT_EQ(gpu_model_of_product("NVIDIA H200")->name, "h200");
  EXPECT_EQ(gpu_model_of_product("NVIDIA A100-SXM4-80GB")->name, "a100");
  EXPECT_EQ(gpu_model_of_product("NVIDIA GB200")->name, "gb200");
  EXPECT_EQ(gpu_model_of_product("NVIDIA B200")->name, "b200");
  EXPECT_EQ(gpu_model_of_product("NVIDIA A10G")->name, "a10g");
  EXPECT_EQ(gpu_model_of_product("Unheard Of 9000"), nullptr);
}

// Known answers of TFRecord: the record of an empty message.
TEST(EventFile, FramesRecordsAsTensorFlowDoes) {
  const std::string empty = tf_record("");
  EXPECT_EQ(empty, std::string("\0\0\0\0\0\0\0\0\x29\x03\x98\x07\xd8\xea\x82\xa2", 16));
}

TEST(EventFile, AnIndependentReaderFindsWhatWasWritten) {
  if (!is_accessible("/usr/bin/python3")) GTEST_SKIP() << "/usr/bin/python3 is absent";
  const TemporaryDirectory dir;
  auto file = EventFile::create(dir / "a/b", 41);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const uint64_t far = uint64_t{1} << 40;
  ASSERT_TRUE(file->append(41, {{"loss", 2.5}, {"lr", 1e-30}}).ok());
  ASSERT_TRUE(file->append(far, {{"loss", std::numeric_limits<double>::infinity()}}).ok());
  const ProgramOutput found = run_program(kReader + file->path());
  ASSERT_EQ(found.status, 0);
  std::string text = found.text;
  const auto lines = read_lines(text.replace(text.find("Infinity"), 8, "\"inf\""));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0]["file_version"], "brain.Event:2");
  EXPECT_EQ(lines[1]["session"], 1);
  EXPECT_EQ(lines[1]["step"], 41);
  EXPECT_EQ(lines[2]["step"], 41);
  EXPECT_EQ(lines[2]["scalars"]["loss"], 2.5);
  EXPECT_EQ(lines[2]["scalars"]["lr"].get<float>(), 1e-30F);
  EXPECT_GT(lines[2]["wall_time"], 1.6e9);
  EXPECT_EQ(lines[3]["step"], far);
  EXPECT_EQ(lines[3]["scalars"]["loss"], "inf");
}

// Whatever tags, values and steps are written, the independent reader finds them; and whatever byte
// of the file changes, it does not take the file for sound.
TEST(EventFile, AnyScalarsComeBackAndAnyDamageIsSeen) {
  if (!is_accessible("/usr/bin/python3")) GTEST_SKIP() << "/usr/bin/python3 is absent";
  const TemporaryDirectory dir;
  Rng rng(4);
  std::deque<std::string> tags;
  std::string records;
  json expected = json::array();
  for (int i = 0; i < 100; ++i) {
    Scalars scalars;
    json values = json::object();
    for (uint64_t n = rng.below(5); n > 0; --n) {
      tags.push_back(std::to_string(tags.size()) + std::string(rng.below(300), 'a'));
      const auto value = std::bit_cast<float>(static_cast<uint32_t>(rng.next()));
      scalars.emplace_back(tags.back().c_str(), value);
      if (std::isfinite(value)) values[tags.back()] = value;
    }
    const uint64_t step = rng.next() >> rng.below(64);
    records += tf_record(scalars_event(static_cast<double>(i), step, scalars));
    expected.push_back({step, values});
  }
  ASSERT_TRUE(write_file_atomic(dir / "events", records).ok());
  const ProgramOutput found = run_program(kReader + (dir / "events"));
  ASSERT_EQ(found.status, 0);
  const std::string text = std::regex_replace(found.text, std::regex("NaN|-?Infinity"), "null");
  const auto lines = read_lines(text);
  ASSERT_EQ(lines.size(), expected.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["step"], expected[i][0]);
    for (const auto& [tag, value] : expected[i][1].items()) {
      EXPECT_EQ(lines[i]["scalars"][tag].get<float>(), value.get<float>()) << tag;
    }
  }
  const std::string one = tf_record(scalars_event(1, 2, {{"loss", 3}}));
  for (int round = 0; round < 8; ++round) {
    std::string damaged = one;
    char& byte = damaged[rng.below(one.size())];
    byte = static_cast<char>(byte ^ (1 << rng.below(8)));
    ASSERT_TRUE(write_file_atomic(dir / "damaged", damaged).ok());
    EXPECT_NE(run_program(kReader + (dir / "damaged") + " 2>&1").status, 0);
  }
}

// TensorBoard reads the files by name: after a clock that went back, it forgot the new steps.
TEST(EventFile, ANewOneIsNamedBehindThoseOfALaterClock) {
  const TemporaryDirectory dir;
  const std::string prefix = dir / "events.out.tfevents.";
  for (const char* name : {"8888888888.host.1", "7777777777.host.2", "no-number"}) {
    ASSERT_TRUE(write_file_atomic(prefix + name, "").ok());
  }
  const auto file = EventFile::create(dir.path(), 1);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_TRUE(file->path().starts_with(prefix + "8888888889.")) << file->path();
}

TEST(EventFile, TensorBoardItselfReadsItAndForgetsRepeatedSteps) {
  if (run_program("/usr/bin/python3 -c 'import tensorboard' 2>&1").status != 0) {
    GTEST_SKIP() << "python3's tensorboard is not installed (Debian has no package of it)";
  }
  const TemporaryDirectory dir;
  auto first = EventFile::create(dir.path(), 1);
  for (uint64_t step = 1; step <= 3; ++step) ASSERT_TRUE(first->append(step, {{"x", 1}}).ok());
  // Another file of the same second and process would have the same name.
  const std::string later = dir / "events.out.tfevents.9999999999.host.1";
  ASSERT_TRUE(write_file_atomic(later, tf_record(version_event(2e9)) +
                                           tf_record(session_start_event(2e9, 3)) +
                                           tf_record(scalars_event(2e9, 3, {{"x", 2}})))
                  .ok());
  const ProgramOutput found = run_program(std::string(kReader) + "--tensorboard " + dir.path());
  ASSERT_EQ(found.status, 0);
  EXPECT_EQ(read_lines(found.text).at(0)["x"], json::parse("[[1, 1.0], [2, 1.0], [3, 2.0]]"));
}

TEST(MetricsWriter, WritesLinesAndEventsOfTheSameValues) {
  const TemporaryDirectory dir;
  Throughput throughput{
      .flops = {.whole = 2e9, .causal = 1e9}, .world_size = 2, .peak_flops = 1e12};
  std::optional<MetricsWriter> writer;
  writer.emplace(dir / "metrics.jsonl", throughput);
  writer->open_events(dir / "tb", 7);
  writer->append({.step = 7,
                  .generation = 2,
                  .loss = 1.5,
                  .grad_norm = 0.5,
                  .lr = 1e-3,
                  .tokens = 100,
                  .step_s = 0.5,
                  .compute_s = 0.25,
                  .comm_s = 0.1,
                  .comm_under_way_s = 0.4,
                  .data_s = 0.05,
                  .save_s = 0.2,
                  .peak_memory_bytes = int64_t{3} << 30});
  writer.reset();  // all is written
  const auto lines = read_lines(read_file(dir / "metrics.jsonl").value());
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["tokens_per_s"], 200);
  EXPECT_DOUBLE_EQ(lines[0]["tflops"], 0.2);
  EXPECT_DOUBLE_EQ(lines[0]["mfu"], 0.2);
  EXPECT_DOUBLE_EQ(lines[0]["mfu_causal"], 0.1);
  EXPECT_DOUBLE_EQ(lines[0]["save_ms"], 200);
  EXPECT_DOUBLE_EQ(lines[0]["comm_under_way_ms"], 400);
  EXPECT_DOUBLE_EQ(lines[0]["comm_overlap"], 0.75);
  if (!is_accessible("/usr/bin/python3")) GTEST_SKIP() << "/usr/bin/python3 is absent";
  const std::string events = dir / "tb/" + list_directory(dir / "tb").value().at(0);
  const json scalars = read_lines(run_program(kReader + events).text).at(2)["scalars"];
  EXPECT_EQ(scalars["loss_metrics/global_avg_loss"], 1.5);
  EXPECT_EQ(scalars["throughput(tps)"], 100) << "per worker";
  EXPECT_NEAR(scalars["time_metrics/data_loading(%)"], 10, 1e-5);
  EXPECT_NEAR(scalars["time_metrics/communication(%)"], 20, 1e-5);
  EXPECT_NEAR(scalars["mfu(%)"], 20, 1e-5);
  EXPECT_EQ(scalars["memory/max_active(GiB)"], 3);
}

// Rank 0 wrote them in its step, so all ranks waited for the file server. A full pipe stands for a
// file on a server that does not answer.
TEST(MetricsWriter, StalledFileHoldsUpNoStepAndLosesOnlyCountedLines) {
  const TemporaryDirectory dir;
  const std::string path = dir / "metrics.jsonl";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const UniqueFd reader(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  MetricsWriter writer(path, {});
  uint64_t step = 0;
  for (size_t bytes = 0; bytes < 2 * MetricsWriter::kMostWaitingBytes; bytes += 200) {
    writer.append({.step = ++step, .step_s = 1});  // of more than 200 bytes
  }
  const uint64_t last = ++step;
  std::string text;
  const auto read_on = [&] {
    pollfd readable{reader.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&readable, 1, 60'000), 1);
    std::string chunk(1 << 16, '\0');
    const ssize_t n = ::read(reader.get(), chunk.data(), chunk.size());
    if (n > 0) text.append(chunk, 0, static_cast<size_t>(n));
  };
  while (!HasFatalFailure() && text.size() < MetricsWriter::kMostWaitingBytes / 2) read_on();
  writer.append({.step = last, .step_s = 1});
  const std::string wanted = "{\"step\":" + std::to_string(last) + ",";
  while (!HasFatalFailure() &&
         text.find(wanted, text.size() - std::min<size_t>(text.size(), 1 << 17)) ==
             std::string::npos)
    read_on();
  EXPECT_TRUE(text.starts_with("{\"step\":1,"));
}

// A trainer ends without destructors, and the line of its last step was lost.
TEST(MetricsWriter, LastLineIsWrittenBeforeTheProcessEnds) {
  const TemporaryDirectory dir;
  const std::string path = dir / "metrics.jsonl";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const UniqueFd reader(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  MetricsWriter writer(path, {});
  writer.await_written(std::chrono::milliseconds(0));  // nothing was appended
  writer.append({.step = 1, .step_s = 1});
  writer.await_written(std::chrono::minutes(1));
  std::string text(1 << 12, '\0');
  ASSERT_GT(::read(reader.get(), text.data(), text.size()), 0);
  EXPECT_TRUE(text.starts_with("{\"step\":1,"));
  for (size_t bytes = 0; bytes < size_t{1} << 17; bytes += 200) {  // more than the pipe holds
    writer.append({.step = 2, .step_s = 1});
  }
  ::testing::internal::CaptureStderr();
  writer.await_written(std::chrono::milliseconds(1));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("bytes of metrics are lost"));
  ASSERT_GE(::fcntl(reader.get(), F_SETPIPE_SZ, 1 << 20), 1 << 20);  // room for what is left
}

// A generation that begins at step 20 asks whether the evaluation that was due there is done.
TEST(EvaluationRecord, CountsTheHistoryThatGoesOn) {
  const TemporaryDirectory dir;
  const std::string path = dir / "metrics.jsonl";
  std::string text;
  const auto has = [&](const std::string& more, const char* part = "validation") {
    text += more;
    EXPECT_TRUE(write_file_atomic(path, text).ok());
    return has_evaluation(path, part, 20);
  };
  EXPECT_FALSE(has_evaluation(path, "validation", 20)) << "no file";
  EXPECT_FALSE(has("{\"step\":10,\"validation_loss\":2.5}\n{\"step\":20,\"loss\":2}\n"));
  EXPECT_TRUE(has("{\"step\":20,\"validation_loss\":2.4}\n"));
  EXPECT_FALSE(has("", "test"));
  EXPECT_TRUE(has("{\"step\":21,\"loss\":2}\n{\"step\":22,\"lo")) << "the last line is torn";
  EXPECT_FALSE(has("\n{\"step\":15,\"loss\":2}\n{\"step\":20,\"loss\":2}\n"))
      << "the job went back";
  EXPECT_TRUE(has("{\"step\":20,\"validation_loss\":2.3}\n"));
  EXPECT_FALSE(has(std::string(kEvaluationTail, '\n'))) << "too far back to look for";
}

TEST(Trace, HoldsTheStepsAskedForAndNoOthers) {
  const TemporaryDirectory dir;
  const std::string path = dir / "trace/g1.r3.json";
  Trace trace(path, 3, 5, 2);
  StepTimes times(trace);
  for (uint64_t step = 4; step <= 8; ++step) {
    times.begin(step);
    times.lap(StepPart::kData);
    times.lap(StepPart::kCompute);
    const auto now = StepTimes::Clock::now();
    trace.add("gather", "layers.1", now - std::chrono::milliseconds(2), now);
    times.lap(StepPart::kReduce);
    EXPECT_EQ(is_accessible(path), step >= 7) << "written when step 6 is complete";
  }
  const json document = json::parse(read_file(path).value());
  std::map<std::string, int> spans;
  std::set<int> steps;
  for (const json& event : document["traceEvents"]) {
    EXPECT_EQ(event["pid"], 3);
    if (event["ph"] != "X") continue;
    ++spans[event["cat"].get<std::string>() + " " + event["name"].get<std::string>()];
    steps.insert(event["args"]["step"].get<int>());
    EXPECT_GT(event["ts"], 1.6e15) << "microseconds since 1970";
    if (event["cat"] == "gather") {
      EXPECT_NEAR(event["dur"], 2000, 1);
    }
  }
  EXPECT_EQ(steps, (std::set<int>{5, 6}));
  EXPECT_EQ(spans["step data"], 2);
  EXPECT_EQ(spans["gather layers.1"], 2);
}

}  // namespace
}  // namespace hpctl
