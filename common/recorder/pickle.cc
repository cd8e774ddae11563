// SPDX-License-Identifier: Apache-2.0
#include "common/recorder/pickle.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using nlohmann::json;

namespace hpctl::recorder {
namespace {

// Names as in Python's pickletools.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kEmptyDict = '}',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
};

struct Item {
  json value;
  size_t values = 1;  // it and all that is in it
  size_t text = 0;
  size_t depth = 0;  // 0 = no container
};

class Reader {
 public:
  Reader(std::string_view data, const PickleLimits& limits) : data_(data), limits_(limits) {}

  Result<json> read() {
    if (data_.size() > limits_.bytes) {
      return Error{ErrorCode::kInvalidArgument,
                   "larger than " + std::to_string(limits_.bytes) + " bytes"};
    }
    while (problem_.empty() && !ended_) step();
    if (problem_.empty() && (stack_.size() != 1 || !marks_.empty()))
      fail("ends with no or half a value");
    if (problem_.empty() && at_ != data_.size()) fail("goes on after its end");
    if (!problem_.empty()) return Error{ErrorCode::kInvalidArgument, problem_};
    return std::move(stack_.front().value);
  }

 private:
  void step() {
    begin_ = at_;
    const auto opcode = static_cast<Opcode>(number(1));
    if (!problem_.empty()) return;
    switch (opcode) {
      case kProto:
        if (number(1) != 2) fail("is not of protocol 2");
        return;
      case kStop:
        ended_ = true;
        return;
      case kMark:
        // Each is used up by a container, whose depth is bounded, but not before its end.
        if (marks_.size() == limits_.depth) return fail("is nested too deep");
        marks_.push_back(stack_.size());
        return;
      case kNone:
        return push(nullptr);
      case kNewTrue:
      case kNewFalse:
        return push(opcode == kNewTrue);
      case kBinInt1:
        return push(number(1));
      case kBinInt2:
        return push(number(2));
      case kBinInt:
        return push(static_cast<int32_t>(static_cast<uint32_t>(number(4))));
      case kLong1:
        return push(long_number());
      case kBinFloat:
        return push(float_number());
      case kBinUnicode:
        return push_text(bytes(static_cast<size_t>(number(4))));
      case kEmptyList:
      case kEmptyTuple:
        return push(json::array());
      case kEmptyDict:
        return push(json::object());
      case kAppends:
        return fill(json::value_t::array);
      case kSetItems:
        return fill(json::value_t::object);
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return make_tuple(static_cast<size_t>(opcode - kTuple1) + 1);
      case kTuple:
        if (const auto mark = take_mark()) make_tuple(stack_.size() - *mark);
        return;
      case kBinPut:
        return put(number(1));
      case kLongBinPut:
        return put(number(4));
      case kBinGet:
        return get(number(1));
      case kLongBinGet:
        return get(number(4));
    }
    fail("has opcode " + std::to_string(opcode) + ", which no flight recorder writes");
  }

  void fail(const std::string& what) {
    if (problem_.empty())
      problem_ = "the pickle " + what + " (byte " + std::to_string(begin_) + ")";
  }

  std::string_view bytes(size_t count) {
    if (count > data_.size() - at_) {
      fail("is cut off");
      return {};
    }
    at_ += count;
    return data_.substr(at_ - count, count);
  }
  // Little-endian; at most 8 bytes. 0 after a failure.
  int64_t number(size_t count) {
    uint64_t value = 0;
    const std::string_view text = bytes(count);
    for (size_t i = text.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(text[i]);
    return static_cast<int64_t>(value);
  }
  // Two's complement of so many bytes.
  int64_t long_number() {
    const auto count = static_cast<size_t>(number(1));
    if (count > 8) fail("has a number of more than 64 bits");
    const std::string_view text = bytes(count > 8 ? 0 : count);
    uint64_t value = !text.empty() && static_cast<uint8_t>(text.back()) >= 0x80 ? ~uint64_t{0} : 0;
    for (size_t i = text.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(text[i]);
    return static_cast<int64_t>(value);
  }
  double float_number() {  // big-endian
    uint64_t value = 0;
    for (const char byte : bytes(8)) value = value << 8 | static_cast<uint8_t>(byte);
    return std::bit_cast<double>(value);
  }

  void push(json value) { add({std::move(value), 1, 0, 0}); }
  void push_text(std::string_view text) { add({json(std::string(text)), 1, text.size(), 0}); }
  void add(Item item) {
    if (item.value.is_structured()) item.depth = std::max<size_t>(item.depth, 1);
    if (!charge(item)) return;
    stack_.push_back(std::move(item));
    is_new_container_ = stack_.back().value.is_structured() && stack_.back().value.empty();
  }
  bool charge(const Item& item) {
    values_ += item.values;
    text_ += item.text;
    if (values_ > limits_.values)
      fail("has more than " + std::to_string(limits_.values) + " values");
    if (text_ > limits_.text)
      fail("has more than " + std::to_string(limits_.text) + " bytes of text");
    return problem_.empty();
  }

  std::optional<size_t> take_mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) {
      fail("ends a container that has not begun");
      return std::nullopt;
    }
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }
  // The items above `floor` go into the container below them.
  void fill(json::value_t type) {
    const auto mark = take_mark();
    if (!mark) return;
    if (*mark == 0 || stack_[*mark - 1].value.type() != type) return fail("fills no container");
    const bool is_object = type == json::value_t::object;
    if (is_object && (stack_.size() - *mark) % 2 != 0) return fail("has a key without a value");
    Item& container = stack_[*mark - 1];
    for (size_t i = *mark; i < stack_.size(); ++i) {
      if (!is_object) {
        absorb(container, stack_[i]);
        container.value.push_back(std::move(stack_[i].value));
        continue;
      }
      if (!stack_[i].value.is_string()) return fail("has a key that is no string");
      const std::string key = stack_[i].value.get<std::string>();
      absorb(container, stack_[i]);
      absorb(container, stack_[++i]);
      container.value[key] = std::move(stack_[i].value);
    }
    finish(*mark, container);
  }
  void make_tuple(size_t count) {
    // Below a mark are the items of another container.
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - floor < count) return fail("makes a tuple of nothing");
    Item tuple{json::array(), 1, 0, 1};
    const size_t begin = stack_.size() - count;
    for (size_t i = begin; i < stack_.size(); ++i) {
      absorb(tuple, stack_[i]);
      tuple.value.push_back(std::move(stack_[i].value));
    }
    ++values_;
    finish(begin, tuple);
    if (problem_.empty()) stack_.push_back(std::move(tuple));
  }
  static void absorb(Item& container, const Item& item) {
    container.values += item.values;
    container.text += item.text;
    container.depth = std::max(container.depth, item.depth + 1);
  }
  void finish(size_t size, const Item& container) {
    if (container.depth > limits_.depth) fail("is nested too deep");
    stack_.resize(size);
    is_new_container_ = false;
  }

  void put(int64_t id) {
    if (!problem_.empty()) return;
    if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size())) {
      return fail("memoises nothing");
    }
    if (!charge(stack_.back())) return;
    // PyTorch memoises whole values. A value that is filled later would be read as if it were
    // empty.
    memo_.insert_or_assign(id, std::pair(stack_.back(), is_new_container_));
  }
  void get(int64_t id) {
    if (!problem_.empty()) return;
    const auto found = memo_.find(id);
    if (found == memo_.end()) return fail("uses what it did not memoise");
    if (found->second.second) return fail("repeats a container that it memoised empty");
    add(found->second.first);
    is_new_container_ = false;
  }

  std::string_view data_;
  const PickleLimits& limits_;
  size_t at_ = 0;
  size_t begin_ = 0;  // of the opcode
  bool ended_ = false;
  std::vector<Item> stack_;
  std::vector<size_t> marks_;
  std::map<int64_t, std::pair<Item, bool>> memo_;
  bool is_new_container_ = false;  // the top of the stack is one that the next opcodes may fill
  size_t values_ = 0;
  size_t text_ = 0;
  std::string problem_;
};

}  // namespace

Result<json> read_pickle(std::string_view data, const PickleLimits& limits) {
  return Reader(data, limits).read();
}

}  // namespace hpctl::recorder
