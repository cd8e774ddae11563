// SPDX-License-Identifier: Apache-2.0
// hpctl eval: the loss of a checkpoint on text.
#include <array>
#include <cstdint>
#include <cstdio>

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/model_use.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace eval_parts {
namespace {

constexpr const char* kHelp = R"(
Computes the loss and the perplexity of a checkpoint on text that it need not have seen, in one
process on this machine: on its first GPU, or else on the CPU with OMP_NUM_THREADS threads (default
1). It computes in fp32 and changes nothing. DIR is a checkpoint directory (its newest valid
checkpoint is meant) or one step-N.gG directory in it; with JOB it is the newest one of that job.

Examples:
  hpctl eval quickstart --data corpus/held-out
  hpctl eval /scratch/run1/step-500.g2 --data text.txt --sequences 100 --json | jq .loss

Options:
  --data PREFIX  text prepared by `hpctl data prepare` with the model's tokenizer; for a model of
                 bytes a text file or a directory of text files
  --seq-len N    tokens of a sequence (default: as in the checkpoint; 2048 at most for an
                 imported model)
  --sequences N  evaluate N sequences only (default: all)
  --json         {"step", "loss", "perplexity", "sequences", "tokens"}

Exit codes: 0 done, 1 no such checkpoint, or it is damaged, 2 wrong arguments or data, 3 JOB:
neither its controller nor HPCTL_HOME answers, 130 interrupted
)";

int print_answer(const Invocation& invocation, const nlohmann::json& answer) {
  const Terminal& terminal = invocation.terminal;
  if (invocation.json()) {
    terminal.out << json_text(answer) << "\n";
    return kExitOk;
  }
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(),
                "step %llu: loss %.4f, perplexity %.2f over %llu sequences",
                static_cast<unsigned long long>(answer.at("step").get<uint64_t>()),
                answer.at("loss").get<double>(), answer.at("perplexity").get<double>(),
                static_cast<unsigned long long>(answer.at("sequences").get<uint64_t>()));
  terminal.out << line.data() << " (" << answer.at("tokens").get<uint64_t>() << " tokens)\n";
  return kExitOk;
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  if (!invocation.has("--data")) {
    return report_usage(terminal, "eval", "expected --data PREFIX, the text to evaluate");
  }
  const auto seq_len = number_option(invocation, "--seq-len", 1, 10'000'000);
  if (!seq_len.ok()) return report_usage(terminal, "eval", seq_len.error().message);
  const auto sequences = number_option(invocation, "--sequences", 1, 1'000'000'000);
  if (!sequences.ok()) return report_usage(terminal, "eval", sequences.error().message);
  const auto checkpoint = resolve_model(invocation.arguments[0]);
  if (!checkpoint.ok()) return report(terminal, checkpoint.error());
  const auto answer = ask_trainer({{"evaluate",
                                    {{"checkpoint", *checkpoint},
                                     {"data", invocation.options.at("--data")},
                                     {"seq_len", seq_len->value_or(0)},
                                     {"sequences", sequences->value_or(0)}}}});
  if (!answer.ok()) return report(terminal, answer.error());
  if (const int* status = std::get_if<int>(&*answer)) return *status;
  return print_answer(invocation, std::get<nlohmann::json>(*answer));
}

}  // namespace
}  // namespace eval_parts

Verb eval_verb() {
  return {
      "eval",
      "DIR|JOB --data PREFIX [--seq-len N] [--sequences N]",
      "the loss of a checkpoint on text",
      eval_parts::kHelp,
      1,
      1,
      {{"--data", nullptr, "PREFIX"}, {"--seq-len", nullptr, "N"}, {"--sequences", nullptr, "N"}},
      eval_parts::run};
}

}  // namespace hpctl
