// SPDX-License-Identifier: Apache-2.0
// Pickles that PyTorch's own writer makes, of the values that its flight recorder gives it.
// LibTorch here may be older than the recorder, so the document is made as
// FlightRecorder::dump_dict() of PyTorch's
// commit 1189309 makes it, format 2.10, and pickled as pickle_str()
// does (TraceUtils.h).
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include "common/recorder/dump.h"
#include "common/recorder/pickle.h"

namespace hpctl::recorder {
namespace {

using c10::IValue;
using ::testing::ElementsAre;

c10::Dict<IValue, IValue> new_dict() {
  return c10::Dict<IValue, IValue>(c10::AnyType::get(), c10::AnyType::get());
}
c10::List<IValue> new_list() { return c10::List<IValue>(c10::AnyType::get()); }

std::string pickle(const IValue& value) {
  std::string text;
  torch::jit::Pickler pickler([&](const char* data, size_t size) { text.append(data, size); },
                              nullptr, nullptr, nullptr, nullptr, false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  return text;
}

c10::List<IValue> shapes(const std::vector<std::vector<int64_t>>& tensors) {
  auto list = new_list();
  for (const auto& tensor : tensors) {
    auto shape = new_list();
    for (const int64_t extent : tensor) shape.push_back(extent);
    list.push_back(shape);
  }
  return list;
}

IValue entry(int64_t id, const std::vector<IValue>& frames, bool completed) {
  auto dict = new_dict();
  auto list = new_list();
  for (const IValue& frame : frames) list.push_back(frame);
  dict.insert("frames", list);
  dict.insert("record_id", id);
  dict.insert("pg_id", int64_t{0});
  dict.insert("process_group", std::tuple<std::string, std::string>("0", "default_pg"));
  dict.insert("thread_name", "pt_main_thread");
  dict.insert("collective_seq_id", id + 70'000);
  dict.insert("profiling_name", "nccl:_all_gather_base");
  dict.insert("time_created_ns", int64_t{1724779239936775119});
  dict.insert("duration_ms", 0.25);
  dict.insert("input_sizes", shapes({{8, 16}}));
  dict.insert("input_dtypes", std::vector<std::string>{"BFloat16"});
  dict.insert("output_sizes", shapes({{16, 16}}));
  dict.insert("output_dtypes", std::vector<std::string>{"BFloat16"});
  dict.insert("state", completed ? "completed" : "started");
  dict.insert("time_discovered_started_ns", IValue());
  dict.insert("retired", completed);
  dict.insert("timeout_ms", int64_t{600000});
  dict.insert("is_p2p", false);
  return dict;
}

// Frames are shared by all entries that were called there, so the writer memoises them.
IValue recorded(int64_t entries) {
  const std::vector<std::pair<std::string, std::string>> places = {
      {"all_gather_into_tensor", "/opt/torch/distributed/distributed_c10d.py"},
      {"step", "/home/ada/train.py"}};
  std::vector<IValue> frames;
  for (const auto& [name, file] : places) {
    auto frame = new_dict();
    frame.insert("name", name);
    frame.insert("filename", file);
    frame.insert("line", int64_t{300});
    frames.emplace_back(frame);
  }
  auto group = new_dict();
  group.insert("name", "0");
  group.insert("desc", "default_pg");
  group.insert("ranks", "[0, 1]");
  auto groups = new_dict();
  groups.insert("0", group);
  auto list = new_list();
  for (int64_t id = 0; id < entries; ++id) list.push_back(entry(id, frames, id + 1 < entries));
  auto document = new_dict();
  document.insert("version", "2.10");
  document.insert("pg_config", groups);
  document.insert("entries", list);
  return document;
}

TEST(TorchPickle, WhatTheRecorderWritesIsRead) {
  const std::string text = pickle(recorded(2000));
  const auto dump = read_dump(text);
  ASSERT_TRUE(dump.ok()) << dump.error().message;
  EXPECT_EQ(dump->groups, (std::vector<Group>{{"0", "default_pg", {0, 1}}}));
  ASSERT_EQ(dump->operations.size(), kMostCompleted + 1) << "the newest";
  const Operation& last = dump->operations.back();
  EXPECT_EQ(last.sequence, 71'999);
  EXPECT_EQ(last.name, "_all_gather_base");
  EXPECT_FALSE(last.completed);
  EXPECT_TRUE(dump->operations.front().completed);
  EXPECT_EQ(dump->operations.front().sequence, 71'999 - static_cast<int64_t>(kMostCompleted));
  EXPECT_THAT(last.input_elements, ElementsAre(128));
  EXPECT_THAT(last.types, ElementsAre("BFloat16", "BFloat16"));
  EXPECT_EQ(last.caller, "train.py:300 in step");
}

TEST(TorchPickle, ValuesOfEverySizeComeBack) {
  auto list = new_list();
  const std::vector<int64_t> numbers = {0,         255,       256,       65535,     65536, -1,
                                        INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, -70000};
  nlohmann::json expected = nlohmann::json::array();
  for (const int64_t number : numbers) {
    list.push_back(number);
    expected.push_back(number);
  }
  const auto read = read_pickle(pickle(list));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, expected);
}

TEST(TorchPickle, APartOfItIsRefused) {
  const std::string text = pickle(recorded(3));
  ASSERT_TRUE(read_dump(text).ok());
  for (size_t size = 0; size < text.size(); ++size) {
    ASSERT_FALSE(read_dump(std::string_view(text).substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace hpctl::recorder
