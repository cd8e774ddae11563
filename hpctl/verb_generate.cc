// SPDX-License-Identifier: Apache-2.0
// hpctl generate: text that a checkpoint goes on with.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/bounded_json.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/model_use.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace generate_parts {
namespace {

constexpr const char* kHelp = R"(
Prints a text and what a checkpoint goes on with, to see what a model has learnt. One process on
this machine computes it: on its first GPU, or else on the CPU with OMP_NUM_THREADS threads (default
1). It keeps nothing between two tokens, so it is no way to serve a model. DIR is a checkpoint
directory (its newest valid checkpoint is meant) or one step-N.gG directory in it; with JOB it is
the newest one of that job.

Examples:
  hpctl generate quickstart --tokenizer byte --prompt 'The licence'
  hpctl generate /scratch/run1 --tokenizer tokenizer.json --prompt 'Once' --tokens 200 --seed 7

Options:
  --tokenizer T    the training's: byte, or a tokenizer.json, vocab.json or tokenizer.model
  --prompt TEXT    the text to go on with
  --tokens N       at most N tokens (default 64), within the length of a sequence of the training;
                   the tokenizer's end of a document ends it before
  --temperature X  0: always the likeliest token (default); more: draw them, of a distribution that
                   is flatter with a larger X
  --seed N         draw the same tokens again (default 0)
  --json           {"step", "prompt", "text", "ids"}; text and ids without the prompt

Exit codes: 0 done, 1 no such checkpoint, or it is damaged, 2 wrong arguments or tokenizer, 3 JOB:
neither its controller nor HPCTL_HOME answers, 130 interrupted
)";

constexpr int64_t kDefaultTokens = 64;
constexpr double kMostTemperature = 100;

Result<double> temperature_of(const Invocation& invocation) {
  const auto given = invocation.options.find("--temperature");
  if (given == invocation.options.end()) return 0.0;
  const std::string& text = given->second;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && value >= 0 && value <= kMostTemperature) return value;
  return Error{ErrorCode::kInvalidArgument,
               "--temperature: expected a number from 0 to 100, found \"" + text + "\""};
}

struct Wanted {
  std::string tokenizer;
  std::string prompt;
  int64_t tokens = 0;
  int64_t seed = 0;
  double temperature = 0;
};

Result<Wanted> wanted_of(const Invocation& invocation) {
  for (const char* name : {"--tokenizer", "--prompt"}) {
    if (invocation.has(name) && !invocation.options.at(name).empty()) continue;
    return Error{ErrorCode::kInvalidArgument, std::string("expected ") + name + " with a value"};
  }
  HP_TRY_ASSIGN(const auto tokens, number_option(invocation, "--tokens", 1, 1'000'000));
  HP_TRY_ASSIGN(const auto seed, number_option(invocation, "--seed", 0, INT64_MAX));
  HP_TRY_ASSIGN(const double temperature, temperature_of(invocation));
  return Wanted{invocation.options.at("--tokenizer"), invocation.options.at("--prompt"),
                tokens.value_or(kDefaultTokens), seed.value_or(0), temperature};
}

// A terminal must not be told what to do; lines stay lines.
std::string shown(const Terminal& terminal, const std::string& text) {
  if (!terminal.live) return text;
  std::string lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines += printable(text.substr(begin, end - begin)) + (end < text.size() ? "\n" : "");
    begin = end + 1;
  }
  return lines;
}

void print_text(const Invocation& invocation, const Wanted& wanted, const nlohmann::json& answer,
                const std::string& text) {
  const Terminal& terminal = invocation.terminal;
  if (!invocation.json()) {
    terminal.out << shown(terminal, wanted.prompt + text) << "\n";
    return;
  }
  terminal.out << json_text(nlohmann::ordered_json{{"step", answer.at("step")},
                                                   {"prompt", wanted.prompt},
                                                   {"text", text},
                                                   {"ids", answer.at("ids")}})
               << "\n";
}

// An exit status.
Result<int> generate(const Invocation& invocation, const Wanted& wanted) {
  HP_TRY_ASSIGN(const std::string checkpoint, resolve_model(invocation.arguments[0]));
  const std::string tokenizer = "--tokenizer=" + wanted.tokenizer;
  HP_TRY_ASSIGN(const auto encoded,
                ask_program("hpdata", {"encode", tokenizer, "--", wanted.prompt}));
  if (const int* status = std::get_if<int>(&encoded)) return *status;
  const auto prompt = parse_json_or_discard(std::get<std::string>(encoded));
  if (!prompt.is_object()) return Error{ErrorCode::kInternal, "hpdata gave no answer"};
  HP_TRY_ASSIGN(const auto answered, ask_trainer({{"generate",
                                                   {{"checkpoint", checkpoint},
                                                    {"prompt", prompt.at("ids")},
                                                    {"tokens", wanted.tokens},
                                                    {"temperature", wanted.temperature},
                                                    {"seed", wanted.seed},
                                                    {"vocabulary", prompt.at("vocabulary")},
                                                    {"end", prompt.at("end")}}}}));
  if (const int* status = std::get_if<int>(&answered)) return *status;
  const auto& answer = std::get<nlohmann::json>(answered);
  std::vector<std::string> words = {"decode", tokenizer, "--"};
  for (const auto& id : answer.at("ids")) words.push_back(std::to_string(id.get<int32_t>()));
  HP_TRY_ASSIGN(const auto decoded, ask_program("hpdata", words));
  if (const int* status = std::get_if<int>(&decoded)) return *status;
  print_text(invocation, wanted, answer, std::get<std::string>(decoded));
  return kExitOk;
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto wanted = wanted_of(invocation);
  if (!wanted.ok()) return report_usage(terminal, "generate", wanted.error().message);
  const auto status = generate(invocation, *wanted);
  return status.ok() ? *status : report(terminal, status.error());
}

}  // namespace
}  // namespace generate_parts

Verb generate_verb() {
  return {"generate",
          "DIR|JOB --tokenizer T --prompt TEXT [OPTION...]",
          "print text that a checkpoint goes on with",
          generate_parts::kHelp,
          1,
          1,
          {{"--tokenizer", nullptr, "T"},
           {"--prompt", nullptr, "TEXT"},
           {"--tokens", nullptr, "N"},
           {"--temperature", nullptr, "X"},
           {"--seed", nullptr, "N"}},
          generate_parts::run};
}

}  // namespace hpctl
