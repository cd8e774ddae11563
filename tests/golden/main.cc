// SPDX-License-Identifier: Apache-2.0
// core_golden DIR [--rewrite]: runs every DIR/NAME.script through the core and compares the report
// with DIR/NAME.report. --rewrite replaces the reports; read the difference before committing it.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

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

bool check(const fs::path& script, bool rewrite) {
  fs::path expected = script;
  expected.replace_extension(".report");
  const auto report = hpctl::core::run_script(read_text(script));
  if (!report.ok()) {
    std::printf("%s: %s\n", script.c_str(), report.error().message.c_str());
    return false;
  }
  if (rewrite) {
    std::ofstream(expected, std::ios::binary) << *report;
    return true;
  }
  const std::string before = read_text(expected);
  if (before == *report) return true;
  std::printf("%s differs; if that is meant, run core_golden --rewrite\n", expected.c_str());
  print_difference(before, *report);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: core_golden DIR [--rewrite]\n");
    return 2;
  }
  const bool rewrite = argc > 2 && std::string(argv[2]) == "--rewrite";
  std::vector<fs::path> scripts;
  for (const auto& entry : fs::directory_iterator(argv[1])) {
    if (entry.path().extension() == ".script") scripts.push_back(entry.path());
  }
  std::sort(scripts.begin(), scripts.end());
  size_t failures = 0;
  for (const fs::path& script : scripts) failures += check(script, rewrite) ? 0 : 1;
  std::printf("%zu scenarios, %zu failures\n", scripts.size(), failures);
  return scripts.empty() || failures > 0 ? 1 : 0;
}
