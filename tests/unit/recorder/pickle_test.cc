// SPDX-License-Identifier: Apache-2.0
// The reader of pickles, on pickles made byte by byte. trainer_recorder_test reads those that
// PyTorch's own writer makes.
#include "common/recorder/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/rng.h"

namespace hpctl::recorder {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using namespace std::string_literals;

const std::string kBegin = "\x80\x02";

std::string text(const std::string& value) {
  return "X" + std::string(1, static_cast<char>(value.size())) + "\0\0\0"s + value;
}
std::string problem_of(const std::string& pickle, const PickleLimits& limits = {}) {
  const auto read = read_pickle(pickle, limits);
  return read.ok() ? "none: " + read->dump() : read.error().message;
}
json value_of(const std::string& opcodes) {
  const auto read = read_pickle(kBegin + opcodes + ".");
  return read.ok() ? *read : json(read.error().message);
}

TEST(Pickle, ValuesAreWhatPythonWouldRead) {
  EXPECT_EQ(value_of("N"), nullptr);
  EXPECT_EQ(value_of("\x88"), true);
  EXPECT_EQ(value_of("\x89"), false);
  EXPECT_EQ(value_of("K\xff"), 255);
  EXPECT_EQ(value_of("M\xfe\xff"), 65534);
  EXPECT_EQ(value_of("J\xfe\xff\xff\xff"), -2);
  EXPECT_EQ(value_of("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"s), INT64_MIN);
  EXPECT_EQ(value_of("\x8a\x02\x00\x80"s), -32768) << "the sign is extended";
  EXPECT_EQ(value_of("\x8a\x00"s), 0);
  EXPECT_EQ(value_of("G\x3f\xf8\x00\x00\x00\x00\x00\x00"s), 1.5);
  EXPECT_EQ(value_of(text("abc")), "abc");
  EXPECT_EQ(value_of("](K\x01K\x02"
                     "e"),
            json({1, 2}));
  EXPECT_EQ(value_of("K\x01\x85"), json({1}));
  EXPECT_EQ(value_of("K\x01K\x02\x86"), json({1, 2}));
  EXPECT_EQ(value_of("K\x01K\x02K\x03\x87"), json({1, 2, 3}));
  EXPECT_EQ(value_of("(K\x01K\x02K\x03K\x04t"), json({1, 2, 3, 4}));
  EXPECT_EQ(value_of(")"), json::array());
  EXPECT_EQ(value_of("}(" + text("a") + "](e" + text("b") + "K\x07u"),
            json({{"a", json::array()}, {"b", 7}}));
}

TEST(Pickle, WhatTheMemoRepeatsIsThereAgain) {
  EXPECT_EQ(value_of("](" + text("x") +
                     "q\x05h\x05"
                     "e"),
            json({"x", "x"}));
  EXPECT_EQ(value_of("](}(" + text("k") + "K\x01uq\x00h\x00"s +
                     "r\x01\x00\x00\x00j\x01\x00\x00\x00"s + "e"),
            json({{{"k", 1}}, {{"k", 1}}, {{"k", 1}}}));
  EXPECT_EQ(value_of("](](eq\x01h\x01"
                     "e"),
            json({json::array(), json::array()}))
      << "one that stays empty is whole";
}

TEST(Pickle, WhatCouldActIsRefusedUnread) {
  // What `pickle.dumps(os.system)` and the like begin with.
  EXPECT_THAT(problem_of(kBegin + "cos\nsystem\n" + text("rm -rf /") + "\x85R."),
              HasSubstr("has opcode 99, which no flight recorder writes (byte 2)"));
  for (int opcode = 0; opcode < 256; ++opcode) {
    const char c = static_cast<char>(opcode);
    if (std::string("(.GJKMNX]ehjqrt)u}\x80\x85\x86\x87\x88\x89\x8a").find(c) !=
        std::string::npos) {
      continue;
    }
    EXPECT_THAT(problem_of(kBegin + "N" + c + "."), HasSubstr("has opcode")) << opcode;
  }
}

TEST(Pickle, APartOfOneIsNotTakenForTheWhole) {
  const std::string good = kBegin + "}(" + text("key") +
                           "q\x01](K\x01M\x01\x02J\x01\x02\x03\x04"
                           "eu.";
  ASSERT_TRUE(read_pickle(good).ok()) << problem_of(good);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(read_pickle(good.substr(0, size)).ok()) << size;
  }
  EXPECT_THAT(problem_of(good + "x"), HasSubstr("goes on after its end"));
}

TEST(Pickle, DamageIsNamed) {
  EXPECT_THAT(problem_of("\x80\x04N."), HasSubstr("protocol"));
  EXPECT_THAT(problem_of(kBegin + "e."), HasSubstr("has not begun"));
  EXPECT_THAT(problem_of(kBegin + "(K\x01"
                                  "e."),
              HasSubstr("fills no container"));
  EXPECT_THAT(problem_of(kBegin + "}(K\x01K\x02u."), HasSubstr("a key that is no string"));
  EXPECT_THAT(problem_of(kBegin + "}(" + text("a") + "u."), HasSubstr("a key without a value"));
  EXPECT_THAT(problem_of(kBegin + "h\x01."), HasSubstr("did not memoise"));
  EXPECT_THAT(problem_of(kBegin + "q\x01."), HasSubstr("memoises nothing"));
  EXPECT_THAT(problem_of(kBegin + "K\x01(\x85"
                                  "."),
              HasSubstr("tuple of nothing"))
      << "what is below a mark belongs to another";
  EXPECT_THAT(problem_of(kBegin + "]q\x01(K\x01"
                                  "eh\x01\x86"
                                  "."),
              HasSubstr("memoised empty"));
  EXPECT_THAT(problem_of(kBegin + "K\x01K\x02."), HasSubstr("half a value"));
  EXPECT_THAT(problem_of(kBegin + "."), HasSubstr("half a value"));
  EXPECT_THAT(problem_of(kBegin + "\x8a\x09"
                                  "123456789."),
              HasSubstr("64 bits"));
}

TEST(Pickle, WhatGrowsIsBounded) {
  EXPECT_THAT(problem_of(kBegin + "N.", {.bytes = 3}), HasSubstr("larger than 3 bytes"));
  std::string deep = kBegin + "N";
  for (int i = 0; i < 100; ++i) deep += "\x85";
  EXPECT_THAT(problem_of(deep + "."), HasSubstr("nested too deep"));
  EXPECT_THAT(problem_of(kBegin + std::string(100, '(')), HasSubstr("nested too deep"));
  // Each line has the one before it twice: 2^30 values in 300 bytes.
  std::string doubling = kBegin + "N";
  for (char id = 0; id < 30; ++id) doubling += "q"s + id + "h"s + id + "\x86";
  EXPECT_THAT(problem_of(doubling + ".", {.depth = 64, .values = 1000}), HasSubstr("1000 values"));
  std::string texts = kBegin + "](" + text(std::string(100, 'x')) + "q\x01";
  for (int i = 0; i < 50; ++i) texts += "h\x01";
  EXPECT_THAT(problem_of(texts + "e.", {.text = 4000}), HasSubstr("4000 bytes of text"));
}

TEST(Pickle, AnyDamageIsHarmless) {
  const std::string good = kBegin + "}(" + text("key") + "q\x01](h\x01K\x01M\x01\x02}(" +
                           text("a") +
                           "Nuq\x02h\x02K\x01\x85"
                           "eu.";
  ASSERT_TRUE(read_pickle(good).ok()) << problem_of(good);
  Rng rng(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = good;
    for (uint64_t n = 1 + rng.below(4); n > 0; --n) {
      damaged[rng.below(damaged.size())] = static_cast<char>(rng.below(256));
    }
    (void)read_pickle(damaged, {.values = 1000});
  }
}

}  // namespace
}  // namespace hpctl::recorder
