// SPDX-License-Identifier: Apache-2.0
// The first hour of a new user, with the real programs and in this order: the quickstart; a command
// submitted from another shell; configurations of other programs; a tokenizer of Qwen's shape; a
// job that is cancelled and resumed; the page of an ended job; eval, generate and export.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"
#include "tests/support/browser.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using test::Browser;
using ::testing::HasSubstr;

constexpr milliseconds kEnough = std::chrono::minutes(3);

std::string repository(const std::string& file) { return HPCTL_SOURCE "/" + file; }

// GPT-2's spelling of a byte (tokenizer_json.cc), in UTF-8.
std::string spelled(int byte) {
  const auto itself = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  int character = byte;
  if (!itself(byte)) {
    character = 256;
    for (int b = 0; b < byte; ++b) character += itself(b) ? 0 : 1;
  }
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xc0 | character >> 6), static_cast<char>(0x80 | (character & 0x3f))};
}

// NFC, Qwen's pattern, a token per byte and three more, and the tokens of a conversation.
json qwen_shaped_tokenizer() {
  json vocabulary = json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[spelled(byte)] = byte;
  const std::string space = spelled(' ');
  vocabulary["th"] = 256;
  vocabulary["the"] = 257;
  vocabulary[space + "the"] = 258;
  const json split = {
      {"type", "Split"},
      {"pattern",
       {{"Regex",
         R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
         R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
      {"behavior", "Isolated"},
      {"invert", false}};
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  json added = json::array();
  int id = 259;
  for (const char* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    added.push_back({{"id", id++}, {"content", name}, {"special", true}});
  }
  return {{"added_tokens", added},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
          {"model",
           {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"t h", "th e", space + " the"}}}}};
}

class FirstHour : public ::testing::Test {
 protected:
  void quickstart() {
    first_ = cluster_.submit(read_file(repository("examples/quickstart.yaml")).value());
    ASSERT_EQ(cluster_.wait_for_end(first_, kEnough), "FINISHED");
    EXPECT_EQ(cluster_.status(first_)["step"], 60);
  }

  // The controller that runs was started from a shell without this variable.
  void command_from_another_shell() {
    const std::string file = write("command.yaml",
                                   "name: command\nworkers_per_node: 2\nworkload:\n"
                                   "  command: [sh, -c, 'echo rank $RANK of $WORLD_SIZE, "
                                   "$FIRST_HOUR']\n");
    const auto submitted = run_command(
        {std::string(std::getenv("HPCTL_BIN")) + "/hpctl", "submit", "--local", "--json", file},
        {"HPCTL_HOME=" + cluster_.paths().home(), "FIRST_HOUR=another shell"});
    ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
    ASSERT_EQ(cluster_.hpctl({"wait", "command"}, kEnough).exit_code, 0);
    const std::string said = cluster_.hpctl({"logs", "command"}).out;
    EXPECT_THAT(said, HasSubstr("rank 0 of 2, another shell"));
    EXPECT_THAT(said, HasSubstr("rank 1 of 2, another shell"));
  }

  void four_configurations() {
    const std::string at = repository("tests/unit/cli/migrate/");
    const std::vector<std::vector<std::string>> configurations = {
        {at + "two_nodes.sbatch", at + "llama.toml"},
        {at + "deepspeed.sbatch", at + "ds_config.json", at + "training_args.json",
         at + "config.json", "--gpu", "h100"},
        {at + "gpt.args"},
        {at + "guide.sbatch"}};
    for (std::vector<std::string> words : configurations) {
      words.insert(words.begin(), "migrate");
      const auto migrated = cluster_.hpctl(words);
      EXPECT_EQ(migrated.exit_code, 0) << words[1] << ": " << migrated.err;
      EXPECT_THAT(migrated.out, HasSubstr("workload:")) << words[1];
      EXPECT_THAT(migrated.err, HasSubstr("taken (")) << words[1];
    }
  }

  void tokenizer_of_qwens_shape() {
    const std::string tokenizer = write("tokenizer.json", qwen_shaped_tokenizer().dump());
    const std::string text = "/usr/share/common-licenses/GPL-3";
    const JobId job = cluster_.submit(
        "name: tokens\nworkload:\n  train:\n    model: {preset: tiny, vocab: 320}\n    data: "
        "{path: " +
        text + ", tokenizer: " + tokenizer +
        ", seq_len: 32}\n    batch: {micro: 1, global: 2}\n    steps: 4\n    precision: fp32\n");
    ASSERT_EQ(cluster_.wait_for_end(job, kEnough), "FINISHED");
    const auto generated = cluster_.hpctl({"generate", "tokens", "--tokenizer", tokenizer,
                                           "--prompt", "the licence", "--tokens", "4"},
                                          kEnough);
    ASSERT_EQ(generated.exit_code, 0) << generated.err;
    EXPECT_TRUE(generated.out.starts_with("the licence")) << generated.out;
  }

  void cancel_and_resume() {
    const TrainingJob long_job{.name = "long", .steps = 100'000, .checkpoint_every = 10};
    const JobId job = cluster_.submit(long_job.yaml());
    ASSERT_TRUE(cluster_.wait_for_step(job, 12, kEnough));
    ASSERT_EQ(cluster_.hpctl({"cancel", "long"}).exit_code, 0);
    ASSERT_EQ(cluster_.wait_for_end(job, kEnough), "CANCELLED");
    const auto reached = cluster_.status(job)["step"].get<uint64_t>();
    const std::string steps = std::to_string(reached + 20);
    const auto resumed = cluster_.hpctl(
        {"resume", "long", "--set", "workload.train.steps=" + steps, "--wait", "--json"}, kEnough);
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_THAT(resumed.err, HasSubstr("it goes on from step-"));
    EXPECT_EQ(json::parse(resumed.out)["step"], reached + 20);
  }

  // Its numbers are those of metrics.jsonl.
  void page_of_an_ended_job() {
    if (!Browser::is_installed()) return;
    std::map<uint64_t, double> losses;  // the last line of a step counts
    std::istringstream file(read_file(cluster_.paths().job_metrics(first_)).value());
    for (std::string line; std::getline(file, line);) {
      const json row = json::parse(line);
      if (row.contains("loss")) losses[row["step"]] = row["loss"];
    }
    const auto opened = cluster_.hpctl({"open", "--json", to_string(first_)});
    ASSERT_EQ(opened.exit_code, 0) << opened.err;
    const auto browser = Browser::start({});
    ASSERT_NE(browser, nullptr);
    browser->go(json::parse(opened.out).at("url"));
    EXPECT_TRUE(browser->wait_for("return Plots.series()?.last_step === 60"));
    const json series = browser->run("return Plots.series()");
    ASSERT_EQ(series["last"].size(), losses.size());
    size_t at = 0;
    for (const auto& [step, loss] : losses) {
      EXPECT_EQ(series["last"][at], step);
      EXPECT_DOUBLE_EQ(series["columns"]["loss"]["v"][at].get<double>(), loss) << step;
      ++at;
    }
    EXPECT_EQ(browser->complaints(), "");
  }

  void use_of_the_model() {
    const auto evaluated =
        cluster_.hpctl({"eval", to_string(first_), "--data", "/usr/share/common-licenses/GPL-3",
                        "--sequences", "8", "--json"},
                       kEnough);
    ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
    EXPECT_EQ(json::parse(evaluated.out)["step"], 60);
    const auto generated = cluster_.hpctl(
        {"generate", to_string(first_), "--tokenizer", "byte", "--prompt", "The ", "--tokens", "8"},
        kEnough);
    ASSERT_EQ(generated.exit_code, 0) << generated.err;
    EXPECT_TRUE(generated.out.starts_with("The ")) << generated.out;
    const std::string out = cluster_.directory() + "/exported";
    const auto exported = cluster_.hpctl({"checkpoint", "export", to_string(first_), out}, kEnough);
    ASSERT_EQ(exported.exit_code, 0) << exported.err;
    EXPECT_TRUE(is_accessible(out + "/model.safetensors"));
    const json config = json::parse(read_file(out + "/config.json").value());
    EXPECT_EQ(config["architectures"], json::array({"LlamaForCausalLM"}));
  }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = cluster_.directory() + "/" + name;
    EXPECT_TRUE(write_file_atomic(path, text).ok());
    return path;
  }

  LocalCluster cluster_;
  JobId first_;
};

TEST_F(FirstHour, EverythingWorksAtTheFirstTry) {
  ASSERT_NO_FATAL_FAILURE(quickstart());
  ASSERT_NO_FATAL_FAILURE(command_from_another_shell());
  ASSERT_NO_FATAL_FAILURE(four_configurations());
  ASSERT_NO_FATAL_FAILURE(tokenizer_of_qwens_shape());
  ASSERT_NO_FATAL_FAILURE(cancel_and_resume());
  ASSERT_NO_FATAL_FAILURE(page_of_an_ended_job());
  ASSERT_NO_FATAL_FAILURE(use_of_the_model());
  cluster_.stop_and_expect_no_leftovers(kEnough);
}

}  // namespace
}  // namespace hpctl::testing
