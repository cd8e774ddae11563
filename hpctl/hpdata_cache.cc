// SPDX-License-Identifier: Apache-2.0
#include "hpctl/hpdata_cache.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/prepare_display.h"
#include "trainer/data/prepare/cached.h"

namespace hpctl {
namespace {

bool parse_cache(const std::vector<std::string>& words, CacheRequest& out) {
  if (words.size() < 3 || words[0] != "cache" || words[words.size() - 2] != "--") return false;
  std::string max_bytes;
  std::string vocabulary;
  std::string workers = "1";
  for (size_t at = 1; at + 2 < words.size(); ++at) {
    const std::string& word = words[at];
    const bool known = take(word, "--tokenizer", out.tokenizer) ||
                       take(word, "--directory", out.directory) ||
                       take_word(word, "--format", out.format) ||
                       take_word(word, "--chat-template", out.chat_template) ||
                       take(word, "--max-bytes", max_bytes) ||
                       take(word, "--vocabulary", vocabulary) || take(word, "--workers", workers);
    if (!known) return false;
  }
  out.input = words.back();
  out.max_bytes = std::strtoull(max_bytes.c_str(), nullptr, 10);
  out.max_vocabulary = std::strtoull(vocabulary.c_str(), nullptr, 10);
  out.workers = std::atoi(workers.c_str());
  return !out.tokenizer.empty() && !out.directory.empty() && out.workers >= 1;
}

}  // namespace

int run_cache(const std::vector<std::string>& words) {
  CacheRequest request;
  if (!parse_cache(words, request)) return kExitUsage;
  PrepareDisplay display(std::cerr, ::isatty(STDERR_FILENO) == 1, monotonic_ms());
  const auto found = prepare_cached(
      request, [&](const PrepareProgress& progress) { display.update(progress, monotonic_ms()); });
  display.finish();
  const nlohmann::ordered_json answer =
      found.ok() ? nlohmann::ordered_json{{"prefix", found->prefix}, {"new", found->is_new}}
                 : nlohmann::ordered_json{{"error", found.error().message}};
  std::cout << json_text(answer) << "\n";
  return found.ok() ? kExitOk : exit_code_of_job_file(found.error());
}

}  // namespace hpctl
