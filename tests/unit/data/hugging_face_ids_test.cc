// SPDX-License-Identifier: Apache-2.0
// The ids of Hugging Face's own library (tokenizers 0.23.2) on texts made of characters on which
// rules of Unicode differ, for each construct of tokenizer.json that hpctl reads.
// make_hugging_face_ids.js writes the file; HPCTL_TOKENIZER_IDS names another one, with more texts.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/unit/data/tokenizer_helpers.h"

namespace hpctl {
namespace {

using nlohmann::json;
using test::encode;
using test::Ids;

std::string file_of_ids() {
  const char* const other = std::getenv("HPCTL_TOKENIZER_IDS");
  return other != nullptr ? other : HPCTL_SOURCE "/tests/unit/data/hugging_face_ids.json";
}

TEST(HuggingFaceIds, EachConstructGivesTheIdsOfTheLibrary) {
  const auto text = read_file(file_of_ids());
  ASSERT_TRUE(text.ok()) << text.error().message;
  const json file = json::parse(*text);
  const auto texts = file.at("texts").get<std::vector<std::string>>();
  EXPECT_GE(file.at("cases").size(), 40U);
  for (const json& one : file.at("cases")) {
    json document = one.at("tokenizer");
    document["model"] = file.at("models").at(document.at("model").get<std::string>());
    const auto tokenizer = parse_tokenizer_json(document.dump(), "t.json");
    ASSERT_TRUE(tokenizer.ok()) << one.at("name") << ": " << tokenizer.error().message;
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(encode(**tokenizer, texts[i]), one.at("ids").at(i).get<Ids>())
          << one.at("name") << ": " << json(texts[i]).dump(-1, ' ', true);
    }
  }
}

}  // namespace
}  // namespace hpctl
