// SPDX-License-Identifier: Apache-2.0
// What is wrong with a JSON file is said with its place and the remedy.
#include "common/base/json_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace hpctl {
namespace {

// What json_of_file() says of `text`, a file t.json.
std::string of_file(const std::string& text, const JsonLimits& limits = {}) {
  const auto document = json_of_file(text, "t.json", limits);
  return document.ok() ? document->dump() : document.error().message;
}

TEST(JsonFile, AFileThatIsCutShortAnywhereIsCalledThat) {
  const std::string whole = "{\n \"a\": [1.5, true, \"\u00e4\xc3\xa4\"],\n \"b\": null\n}";
  ASSERT_EQ(of_file(whole), R"({"a":[1.5,true,"ää"],"b":null})");
  for (size_t size = 1; size < whole.size(); ++size) {
    const std::string torn = whole.substr(0, size);
    const auto lines = 1 + std::count(torn.begin(), torn.end(), '\n');
    EXPECT_EQ(of_file(torn), "t.json:" + std::to_string(lines) +
                                 ": the file ends inside the document, after " +
                                 std::to_string(size) + " bytes: it was cut short; get it again");
  }
}

TEST(JsonFile, OtherDamageOfAFileHasItsPlaceAndRemedy) {
  EXPECT_EQ(of_file(""), "t.json:1: the file is empty (0 bytes); get it again");
  EXPECT_EQ(of_file(" \n"), "t.json:2: the file is empty (2 bytes); get it again");
  const std::string zeros(9, '\0');
  EXPECT_EQ(of_file("[1,\n2" + zeros),
            "t.json:2: byte 6 of 14 is zero: the file was not written whole; get it again");
  EXPECT_EQ(of_file("[\"a" + zeros),
            "t.json:1: byte 4 of 12 is zero: the file was not written whole; get it again");
  EXPECT_EQ(
      of_file("{\n\"a\": 1,\n}"),
      "t.json:3: not JSON at byte 11, the last of `}`; correct it there, or get the file again");
  EXPECT_EQ(
      of_file("{\n \"a\": True}"),
      "t.json:2: not JSON at byte 9, the last of ` \"a\": T`; correct it there, or get the file "
      "again");
  EXPECT_EQ(
      of_file("[\n\"a\n\"]"),
      "t.json:2: not JSON at byte 5, the last of `\"a`; correct it there, or get the file again");
  EXPECT_EQ(
      of_file("<html>"),
      "t.json:1: not JSON at byte 1, the last of `<`; correct it there, or get the file again");
  EXPECT_EQ(of_file("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n"),
            "t.json:1: a pointer of Git LFS, not the file itself; run `git lfs pull` where it was "
            "cloned");
  EXPECT_EQ(of_file("[[]]", {.depth = 1}), "t.json cannot be read: nested deeper than 1 levels");
}

}  // namespace
}  // namespace hpctl
