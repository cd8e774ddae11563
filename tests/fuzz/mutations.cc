// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/mutations.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/json.h"
#include "tests/support/json_mutation.h"

namespace hpctl::fuzz {
namespace {

constexpr size_t kMostBytes = 256U << 10;
constexpr size_t kMostJsonBytes = 64U << 10;

const std::vector<std::string>& boundary_texts() {
  static const std::vector<std::string> texts = {"0",
                                                 "-1",
                                                 "00",
                                                 "255",
                                                 "65536",
                                                 "2147483648",
                                                 "-2147483649",
                                                 "4294967295",
                                                 "4294967297",
                                                 "1000000000001",
                                                 "9223372036854775807",
                                                 "-9223372036854775808",
                                                 "18446744073709551615",
                                                 "18446744073709551616",
                                                 "0.5",
                                                 "1e300",
                                                 "-1e-300",
                                                 "99999999999999999999999999999999",
                                                 "null",
                                                 "\"\"",
                                                 "[]",
                                                 "{}",
                                                 "\xff",
                                                 "\\u001b[2J",
                                                 "../.."};
  return texts;
}

constexpr std::array<uint64_t, 12> kBoundaries = {0,
                                                  1,
                                                  0x7f,
                                                  0xff,
                                                  0x7fffffff,
                                                  0x80000000,
                                                  0xffffffff,
                                                  0x100000000,
                                                  1'000'000'000'001,
                                                  0x7fffffffffffffff,
                                                  0x8000000000000000,
                                                  0xffffffffffffffff};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// [begin, end) of at most 64 bytes.
std::pair<size_t, size_t> piece_of(const std::string& text, Rng& rng) {
  const size_t begin = rng.below(text.size() + 1);
  const size_t length = std::min<size_t>(text.size() - begin, rng.below(64) + 1);
  return {begin, begin + length};
}

void replace_number(std::string& text, Rng& rng) {
  const size_t from = rng.below(text.size() + 1);
  const auto first =
      std::find_if(text.begin() + static_cast<ptrdiff_t>(from), text.end(), is_digit);
  if (first == text.end()) return;
  const auto last = std::find_if_not(first, text.end(), is_digit);
  text.replace(first, last, boundary_texts()[rng.below(boundary_texts().size())]);
}

void replace_word(std::string& text, Rng& rng) {
  const std::array<size_t, 4> widths = {1, 2, 4, 8};
  const size_t width = widths[rng.below(widths.size())];
  if (text.size() < width) return;
  const uint64_t value = kBoundaries[rng.below(kBoundaries.size())];
  std::memcpy(text.data() + rng.below(text.size() - width + 1), &value, width);
}

void nest(std::string& text, Rng& rng) {
  const std::array<std::string_view, 6> openings = {"[", "{\"a\":", "(", "- ", "\x80\x02(", "{a: "};
  const std::string_view opening = openings[rng.below(openings.size())];
  std::string nested;
  for (size_t i = rng.below(300) + 1; i > 0; --i) nested += opening;
  text.insert(rng.below(text.size() + 1), nested);
}

void change_json(std::string& text, Rng& rng) {
  if (text.size() > kMostJsonBytes) return;
  auto document = nlohmann::json::parse(text, nullptr, false);
  if (!document.is_structured()) return;
  mutate(document, rng);
  text = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void change(std::string& text, std::string_view other, Rng& rng) {
  const auto [begin, end] = piece_of(text, rng);
  const std::string piece = text.substr(begin, end - begin);
  switch (rng.below(11)) {
    case 0:
      if (!text.empty()) text[rng.below(text.size())] ^= static_cast<char>(1 << rng.below(8));
      return;
    case 1:
      if (!text.empty()) text[rng.below(text.size())] = static_cast<char>(rng.next());
      return;
    case 2:
      text.erase(begin, end - begin);
      return;
    case 3:
      for (size_t i = rng.below(20); i > 0; --i) text.insert(begin, piece);
      return;
    case 4:
      text.resize(rng.below(text.size() + 1));
      return;
    case 5:
      text.insert(begin, boundary_texts()[rng.below(boundary_texts().size())]);
      return;
    case 6: {
      const std::string donor(other);
      const auto [first, last] = piece_of(donor, rng);
      text.replace(begin, end - begin, donor, first, last - first);
      return;
    }
    case 7:
      return replace_word(text, rng);
    case 8:
      return nest(text, rng);
    case 9:
      return replace_number(text, rng);
    default:
      return change_json(text, rng);
  }
}

std::string repeated(std::string_view piece, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += piece;
  return text;
}

}  // namespace

const std::vector<std::string>& awkward_inputs() {
  static const std::vector<std::string> inputs = {"",
                                                  std::string(1, '\0'),
                                                  std::string(4096, '\xff'),
                                                  std::string(4096, '\0'),
                                                  std::string(kMostBytes, '\xff'),
                                                  repeated("[", 100'000),
                                                  repeated("{\"a\":", 20'000),
                                                  repeated("[1,", 20'000),
                                                  repeated("- ", 20'000),
                                                  repeated("a: {", 2'000),
                                                  repeated("(", 20'000),
                                                  "[" + std::string(100'000, '9') + "]",
                                                  std::string(100'000, '9'),
                                                  std::string(100'000, '\n'),
                                                  "\"" + std::string(100'000, 'x') + "\"",
                                                  "{\"\xc3\x28\":\"\xed\xa0\x80\"}",
                                                  "\xef\xbb\xbf{}"};
  return inputs;
}

std::vector<std::string> truncations(std::string_view input, size_t most) {
  std::vector<std::string> cut;
  const size_t step = std::max<size_t>(1, input.size() / most);
  for (size_t size = 0; size < input.size(); size += step) cut.emplace_back(input.substr(0, size));
  return cut;
}

std::vector<std::string> with_unfit_numbers(std::string_view input, size_t most) {
  std::vector<size_t> places;  // where a number of a JSON document begins
  for (size_t i = 1; i < input.size(); ++i) {
    const bool begins = is_digit(input[i]) && !is_digit(input[i - 1]);
    if (begins && std::string_view(":,[ -").find(input[i - 1]) != std::string_view::npos) {
      places.push_back(i);
    }
  }
  std::vector<std::string> changed;
  const size_t step = places.size() / most + 1;
  for (size_t i = 0; i < places.size(); i += step) {
    const size_t begin = input[places[i] - 1] == '-' ? places[i] - 1 : places[i];
    const size_t end = std::min(input.find_first_not_of("0123456789.eE+-", begin), input.size());
    for (const char* unfit : {"1e30", "2.5", "-1", "9223372036854775808", "18446744073709551616"}) {
      changed.push_back(std::string(input.substr(0, begin)) + unfit +
                        std::string(input.substr(end)));
    }
  }
  return changed;
}

std::string mutated(std::string_view input, std::string_view other, Rng& rng) {
  std::string text(input);
  for (size_t i = rng.below(4) + 1; i > 0; --i) change(text, other, rng);
  text.resize(std::min(text.size(), kMostBytes));
  return text;
}

}  // namespace hpctl::fuzz
