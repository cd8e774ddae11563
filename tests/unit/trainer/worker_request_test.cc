// SPDX-License-Identifier: Apache-2.0
// `hptrain --request` on a checkpoint of real workers: what hpctl eval and hpctl generate run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/json.h"
#include "tests/support/program_output.h"
#include "tests/unit/trainer/worker_job.h"

namespace hpctl {
namespace {

using nlohmann::json;
using ::testing::Each;
using testing::Job;

constexpr int kDocuments = 9;

// Documents to train on, and one for validation: the last.
std::string document_text(int number) {
  std::string text;
  for (int line = 0; line < 60; ++line) {
    text += "line " + std::to_string(number * line % 97) + " of document " +
            std::to_string(number) + "\n";
  }
  return text;
}

json ask(const json& request) {
  const std::string program = std::string(std::getenv("HPCTL_BIN")) + "/hptrain";
  const ProgramOutput output = run_program(program + " --request '" + request.dump() + "'");
  EXPECT_EQ(output.status, 0) << output.text;
  return output.status == 0 ? json::parse(output.text) : json::object();
}

TEST(WorkerRequest, EvaluatesAsTheJobDidAndGeneratesTheSameAgain) {
  Job job(2);
  const std::string corpus = job / "documents";
  std::filesystem::create_directory(corpus);
  for (int i = 0; i <= kDocuments; ++i) {
    std::ofstream(corpus + "/" + std::to_string(i)) << document_text(i);
  }
  job.workload.train.data.path = corpus;
  job.workload.train.data.split = {kDocuments, 1, 0};
  job.workload.train.validation.every_steps = 8;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const std::string checkpoint = job.workload.checkpoint_dir + "/step-8.g1";
  const json validation = job.metrics().back();
  ASSERT_TRUE(validation.contains("validation_loss"));

  const json all = ask({{"evaluate",
                         {{"checkpoint", checkpoint},
                          {"data", corpus + "/" + std::to_string(kDocuments)},
                          {"seq_len", 0},
                          {"sequences", 0}}}});
  EXPECT_EQ(all["step"], 8);
  EXPECT_EQ(all["sequences"], validation["sequences"]);
  EXPECT_NEAR(all["loss"], validation["validation_loss"], 1e-3);
  EXPECT_NEAR(all["perplexity"], std::exp(all["loss"].get<double>()), 1e-6);

  const auto generated = [&](double temperature, uint64_t seed) {
    return ask({{"generate",
                 {{"checkpoint", checkpoint},
                  {"prompt", {108, 105, 110}},
                  {"tokens", 6},
                  {"temperature", temperature},
                  {"seed", seed},
                  {"vocabulary", 256},
                  {"end", -1}}}})["ids"];
  };
  const json likeliest = generated(0, 1);
  ASSERT_EQ(likeliest.size(), 6U);
  EXPECT_EQ(generated(0, 2), likeliest) << "without a temperature nothing is drawn";
  EXPECT_EQ(generated(5, 1), generated(5, 1)) << "one seed, the same tokens";
  EXPECT_NE(generated(5, 1), generated(5, 2));
}

}  // namespace
}  // namespace hpctl
