// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/properties.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "common/jobfile/yaml_value.h"

namespace hpctl::fuzz {
namespace {

constexpr size_t kMostReadable = 8192;
constexpr size_t kShown = 2000;

}  // namespace

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "\nfuzz: %s\n", what.substr(0, kShown).c_str());
  std::abort();
}

void require_readable(std::string_view text, const char* what, bool lines) {
  const std::string told = std::string(what) + ": " + std::string(text.substr(0, kShown));
  require(text.size() <= kMostReadable, "too long to be read, " + told);
  require(is_plain_text(text), "not printable, " + told);
  const bool ends_line = text.find_first_of("\n\t") != std::string_view::npos;
  require(lines || !ends_line, "more than a line, " + told);
}

void require_explained(const Error& error, std::string_view cause) {
  require(!error.message.empty(), "an error without words");
  require_readable(error.message, "an error");
  require(error.message.find(cause) != std::string::npos,
          "the error does not name " + std::string(cause) + ": " + error.message);
}

}  // namespace hpctl::fuzz
