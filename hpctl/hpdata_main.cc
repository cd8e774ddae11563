// SPDX-License-Identifier: Apache-2.0
// hpdata: what `hpctl data prepare` and `hpctl submit` run, with arguments that hpctl has checked.
// A program of its own because libsentencepiece brings symbols of another protobuf than that of
// gRPC.
//
//   hpdata prepare --tokenizer=T --out=PREFIX --json-key=KEY --workers=N [--append-eod] [--json]
//          [--format=WORD] [--chat-template=WORD] [--max-bad-lines=N] -- INPUT...
//   hpdata cache ...   (hpdata_cache.h)
//   hpdata encode|decode ...   (hpdata_tokens.h)
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "hpctl/exit_codes.h"
#include "hpctl/hpdata_cache.h"
#include "hpctl/hpdata_tokens.h"
#include "hpctl/prepare_display.h"
#include "hpctl/standard_streams.h"
#include "trainer/data/prepare/prepare.h"

namespace hpctl {
namespace {

struct Arguments {
  PrepareOptions options;
  bool json = false;
};

// False: not what hpctl says.
bool parse(const std::vector<std::string>& words, Arguments& out) {
  if (words.empty() || words[0] != "prepare") return false;
  size_t at = 1;
  std::string workers = "1";
  std::string max_bad_lines = "0";
  for (; at < words.size() && words[at] != "--"; ++at) {
    const std::string& word = words[at];
    const bool known =
        take(word, "--tokenizer", out.options.tokenizer) || take(word, "--out", out.options.out) ||
        take(word, "--json-key", out.options.json_key) || take(word, "--workers", workers) ||
        take(word, "--max-bad-lines", max_bad_lines) ||
        take_word(word, "--format", out.options.format) ||
        take_word(word, "--chat-template", out.options.chat_template);
    if (word == "--append-eod") out.options.append_eod = true;
    if (word == "--json") out.json = true;
    if (!known && word != "--append-eod" && word != "--json") return false;
  }
  for (++at; at < words.size(); ++at) out.options.inputs.push_back(words[at]);
  out.options.workers = std::atoi(workers.c_str());
  out.options.max_bad_lines = std::strtoull(max_bad_lines.c_str(), nullptr, 10);
  return !out.options.inputs.empty() && !out.options.tokenizer.empty() &&
         !out.options.out.empty() && out.options.workers >= 1;
}

int run(const Arguments& arguments) {
  const PrepareOptions& options = arguments.options;
  PrepareDisplay display(std::cerr, ::isatty(STDERR_FILENO) == 1, monotonic_ms());
  const auto result = prepare_data(
      options, [&](const PrepareProgress& progress) { display.update(progress, monotonic_ms()); });
  display.finish();
  if (!result.ok()) {
    std::cerr << "hpctl: " << printable(result.error().message) << "\n";
    return exit_code_of_input(result.error());
  }
  const PreparedNote& note = result->note;
  if (arguments.json) {
    nlohmann::ordered_json document = {
        {"prefix", options.out},      {"documents", note.documents},
        {"tokens", note.tokens},      {"text_bytes", note.text_bytes},
        {"empty", result->empty},     {"vocabulary", note.vocabulary},
        {"bad_lines", note.bad_lines}};
    if (note.format != DataFormat::kText) document["answer_tokens"] = note.answer_tokens;
    std::cout << document << "\n";
    return kExitOk;
  }
  std::cout << options.out << ": " << counted(static_cast<int64_t>(note.documents), "document")
            << ", " << note.tokens << " tokens";
  if (note.format != DataFormat::kText) std::cout << ", " << note.answer_tokens << " of answers";
  if (result->empty > 0) std::cout << "; " << result->empty << " empty ones left out";
  if (note.bad_lines > 0) {
    std::cout << "; " << counted(static_cast<int64_t>(note.bad_lines), "bad line") << " left out";
    if (!result->first_bad.empty()) std::cout << ", the first: " << printable(result->first_bad);
  }
  std::cout << "\ntrain on it with workload.train.data.path: " << options.out << "\n";
  return kExitOk;
}

}  // namespace
}  // namespace hpctl

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words[0] == "cache") return hpctl::run_cache(words);
  if (!words.empty() && (words[0] == "encode" || words[0] == "decode")) {
    return hpctl::finish_output(hpctl::run_tokens(words));
  }
  hpctl::Arguments arguments;
  if (!hpctl::parse(words, arguments)) {
    std::cerr << "hpdata: not for people; use `hpctl data prepare`\n";
    return hpctl::kExitUsage;
  }
  return hpctl::finish_output(hpctl::run(arguments));
}
