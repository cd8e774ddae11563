// SPDX-License-Identifier: Apache-2.0
// core_golden DIR [TABLE] [--rewrite]: runs every DIR/NAME.script through the core and compares the
// report with DIR/NAME.report, and the core's table of decisions with the page TABLE. --rewrite
// replaces reports and page; read the difference before committing it.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "controller/core/reconcile.h"
#include "tests/golden/script.h"

namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The first line in which the two texts differ.
void print_difference(const std::string& expected, const std::string& actual) {
  size_t line = 1;
  size_t start = 0;
  for (size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
    if (expected[i] != actual[i]) break;
    if (expected[i] == '\n') {
      ++line;
      start = i + 1;
    }
  }
  const auto rest = [&](const std::string& text) {
    return text.substr(start, text.find('\n', start) - start);
  };
  std::printf("  line %zu\n  expected: %s\n  actual:   %s\n", line, rest(expected).c_str(),
              rest(actual).c_str());
}

bool compare(const fs::path& expected, const std::string& actual, bool rewrite) {
  if (rewrite) {
    std::ofstream(expected, std::ios::binary) << actual;
    return true;
  }
  const std::string before = read_text(expected);
  if (before == actual) return true;
  std::printf("%s differs; if that is meant, run core_golden --rewrite\n", expected.c_str());
  print_difference(before, actual);
  return false;
}

bool check(const fs::path& script, bool rewrite) {
  const auto report = hpctl::core::run_script(read_text(script));
  if (!report.ok()) {
    std::printf("%s: %s\n", script.c_str(), report.error().message.c_str());
    return false;
  }
  fs::path expected = script;
  return compare(expected.replace_extension(".report"), *report, rewrite);
}

std::string table_page() {
  std::string text =
      "# What the controller decides, and in which order\n\n"
      "An event changes the rows that it speaks of. Then the core makes the first move of this "
      "table that fits the\njob, again and again, until none does (`controller/core/reconcile.cc`; "
      "`core_golden` writes this page).\n\n"
      "| | situation | move |\n|---|---|---|\n";
  int number = 0;
  for (const auto& [when, move] : hpctl::core::situations()) {
    text += "| " + std::to_string(++number) + " | " + when + " | " + move + " |\n";
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: core_golden DIR [TABLE] [--rewrite]\n");
    return 2;
  }
  const bool rewrite = argc > 2 && std::string(argv[argc - 1]) == "--rewrite";
  std::vector<fs::path> scripts;
  for (const auto& entry : fs::directory_iterator(argv[1])) {
    if (entry.path().extension() == ".script") scripts.push_back(entry.path());
  }
  std::sort(scripts.begin(), scripts.end());
  size_t failures = 0;
  for (const fs::path& script : scripts) failures += check(script, rewrite) ? 0 : 1;
  if (argc > (rewrite ? 3 : 2)) failures += compare(argv[2], table_page(), rewrite) ? 0 : 1;
  std::printf("%zu scenarios, %zu failures\n", scripts.size(), failures);
  return scripts.empty() || failures > 0 ? 1 : 0;
}
