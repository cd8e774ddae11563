// SPDX-License-Identifier: Apache-2.0
#include "hpctl/hpdata_tokens.h"

#include <charconv>
#include <cstdint>
#include <iostream>
#include <memory>

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/hpdata_cache.h"
#include "hpctl/terminal.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {
namespace {

Result<std::string> encode_words(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  HP_TRY(tokenizer.make_encoder()->encode(text, ids));
  return json_text(nlohmann::ordered_json{{"ids", ids},
                                          {"vocabulary", tokenizer.vocabulary()},
                                          {"end", tokenizer.end_of_document()}}) +
         "\n";
}

Result<std::string> decode_words(const Tokenizer& tokenizer,
                                 const std::vector<std::string>& words) {
  std::vector<int32_t> ids;
  for (const std::string& word : words) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size()) {
      return Error{ErrorCode::kInvalidArgument, "\"" + word + "\" is no token id"};
    }
    ids.push_back(id);
  }
  return tokenizer.decode(ids);
}

Result<std::string> convert(bool encodes, const std::string& name,
                            const std::vector<std::string>& rest) {
  HP_TRY_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, load_tokenizer(name));
  return encodes ? encode_words(*tokenizer, rest.front()) : decode_words(*tokenizer, rest);
}

}  // namespace

int run_tokens(const std::vector<std::string>& words) {
  const bool encodes = words[0] == "encode";
  std::string tokenizer;
  const bool is_known = words.size() >= 3 && take(words[1], "--tokenizer", tokenizer) &&
                        words[2] == "--" && (!encodes || words.size() == 4);
  if (!is_known) {
    std::cerr << "hpdata: not for people; use `hpctl generate`\n";
    return kExitUsage;
  }
  const auto text = convert(encodes, tokenizer, {words.begin() + 3, words.end()});
  if (!text.ok()) {
    std::cerr << "hpctl: " << printable(text.error().message) << "\n";
    return exit_code_of_job_file(text.error());
  }
  std::cout << *text;
  return kExitOk;
}

}  // namespace hpctl
