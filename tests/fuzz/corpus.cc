// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/corpus.h"

#include <filesystem>

#include "common/base/file.h"
#include "tests/fuzz/properties.h"

namespace hpctl::fuzz {
namespace {

const std::string kSource = HPCTL_SOURCE;

std::string content_of(const std::string& path) {
  auto text = read_file(path);
  require(text.ok(), text.ok() ? "" : text.error().message);
  return *std::move(text);
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string from_hex(const std::string& text, const std::string& path) {
  std::string bytes;
  int high = -1;
  for (const char c : text) {
    if (c == ' ' || c == '\n') continue;
    require(digit(c) >= 0, path + ": \"" + c + "\" is no hexadecimal digit");
    if (high >= 0) bytes += static_cast<char>(high << 4 | digit(c));
    high = high >= 0 ? -1 : digit(c);
  }
  require(high < 0, path + ": an odd number of digits");
  return bytes;
}

}  // namespace

std::string regressions_directory() {
  return kSource + "/tests/fuzz/regressions/" + HPCTL_FUZZ_PROGRAM;
}

std::vector<std::string> sound_inputs(const Harness& harness) {
  std::vector<std::string> inputs;
  if (harness.seeds != nullptr) inputs = harness.seeds();
  for (const char* file : harness.files) {
    const std::string path = kSource + "/" + file;
    if (!std::filesystem::is_directory(path)) {
      inputs.push_back(content_of(path));
      continue;
    }
    const auto names = list_directory(path);
    require(names.ok(), "cannot list " + path);
    for (const std::string& name : *names) inputs.push_back(content_of(path + "/" + name));
  }
  require(!inputs.empty(), std::string("harness ") + harness.name + " has no seeds");
  return inputs;
}

std::vector<Regression> regressions(const Harness& harness) {
  const std::string directory = regressions_directory() + "/" + harness.name;
  std::vector<Regression> found;
  if (!is_accessible(directory)) return found;
  const auto names = list_directory(directory);
  require(names.ok(), "cannot list " + directory);
  for (const std::string& name : *names) {
    const std::string path = directory + "/" + name;
    const std::string text = content_of(path);
    found.push_back({name, name.ends_with(".hex") ? from_hex(text, path) : text});
  }
  return found;
}

}  // namespace hpctl::fuzz
