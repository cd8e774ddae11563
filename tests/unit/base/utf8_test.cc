// SPDX-License-Identifier: Apache-2.0
// Bytes that are not UTF-8: what is written as JSON can be read again, and a path that could not be
// found again is refused.
#include "common/base/utf8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/job/paths.h"
#include "tests/support/scoped_variable.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;

TEST(Utf8, WellFormedSequencesOnly) {
  for (const char* text :
       {"", "a", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
  for (const char* text : {"\xff", "a\x80", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
    EXPECT_FALSE(is_utf8(text)) << printable_line(text, 20);
    EXPECT_TRUE(is_utf8(printable_line(text, 20))) << "a surrogate is not printable either";
  }
}

// A terminal that takes 8-bit controls obeys U+009B as it does ESC [.
TEST(Printable, NoControlCharacterIsLeft) {
  EXPECT_EQ(printable_line("a\x1b[2J\xc2\x9bx\x7f", 40), "a?[2J?x?");
  EXPECT_EQ(printable_line("\xc2\x80\xc2\x9f\xc2\xa0", 40), "??\xc2\xa0") << "no control";
  EXPECT_FALSE(starts_with_control("\xc2"));
  EXPECT_FALSE(starts_with_control(""));
}

// The library's dump() threw type_error.316: a path of such bytes aborted every controller that had
// a job in it.
TEST(JsonText, InvalidBytesAreReplaced) {
  const std::string path = "/tmp/\xff\xc3/job";
  const std::string replaced = "/tmp/\xef\xbf\xbd\xef\xbf\xbd/job";
  const std::string text = json_text(nlohmann::json{{"dir", path}});
  EXPECT_EQ(nlohmann::json::parse(text).at("dir"), replaced);
  EXPECT_EQ(json_text(nlohmann::ordered_json{{"dir", path}}), text);
  EXPECT_EQ(nlohmann::json::parse(json_text(nlohmann::json{{path, 1}})).begin().key(), replaced);
}

TEST(JsonText, TakesItsForm) {
  const nlohmann::json document = {{"a", "\xc3\xa4"}};
  EXPECT_EQ(json_text(document), "{\"a\":\"\xc3\xa4\"}");
  EXPECT_EQ(json_text(document, {.indent = 1}), "{\n \"a\": \"\xc3\xa4\"\n}");
  EXPECT_EQ(json_text(document, {.ascii = true}), "{\"a\":\"\\u00e4\"}");
}

TEST(Home, NotUtf8IsRefused) {
  const testing::ScopedVariable home("HPCTL_HOME", "/tmp/\xff/home");
  const auto paths = home_from_environment();
  ASSERT_FALSE(paths.ok());
  EXPECT_EQ(paths.error().message,
            "the home /tmp/?/home has bytes that are not UTF-8, shown as ?; set HPCTL_HOME to "
            "another directory");
}

TEST(Home, OtherCharactersThanAsciiAreTaken) {
  const testing::ScopedVariable home("HPCTL_HOME", "/tmp/\xc3\xa4/home");
  ASSERT_TRUE(home_from_environment().ok());
  EXPECT_TRUE(check_path_is_text("--job-dir", "", "").ok()) << "none is given";
}

}  // namespace
}  // namespace hpctl
