// SPDX-License-Identifier: Apache-2.0
#include "common/process/python_command.h"

#include <gtest/gtest.h>

#include "common/base/file.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using Words = std::vector<std::string>;

// "INTERPRETER | KIND TARGET | ARGUMENTS", or "-".
std::string text_of(const std::optional<PythonCommand>& python) {
  if (!python) return "-";
  std::string text;
  for (const std::string& word : python->interpreter) text += word + " ";
  text += std::string("| ") + to_word(python->main) + " " + python->target + " |";
  for (const std::string& word : python->arguments) text += " " + word;
  return text;
}

std::string taken_apart(const Words& command) { return text_of(python_command(command)); }

TEST(PythonCommand, IsTakenApartAsPythonDoesIt) {
  const std::pair<Words, std::string> cases[] = {
      {{"python", "x.py"}, "python | script x.py |"},
      {{"/v/bin/python3.13t", "x.py", "-m", "8"}, "/v/bin/python3.13t | script x.py | -m 8"},
      {{"python3", "-u", "-X", "utf8", "-Wignore", "x.py"},
       "python3 -u -X utf8 -Wignore | script x.py |"},
      {{"python3", "-m", "a.b", "-c"}, "python3 | module a.b | -c"},
      {{"python3", "-ma.b"}, "python3 | module a.b |"},
      {{"python3", "-uOm", "a"}, "python3 -uO | module a |"},
      {{"python3", "-Im", "a"}, "python3 -I | module a |"},
      {{"python3", "-c", "print(1)", "-u"}, "python3 | code print(1) | -u"},
      {{"uv", "run", "--project", "/p", "--", "python", "x.py", "--", "y"},
       "uv run --project /p -- python | script x.py | -- y"}};
  for (const auto& [command, expected] : cases) EXPECT_EQ(taken_apart(command), expected);
}

TEST(PythonCommand, WhatCannotBeTakenOverIsNone) {
  const Words cases[] = {{},
                         {"train.py"},
                         {"pythonic", "x.py"},
                         {"ipython3", "x.py"},
                         {"bash", "-c", "python x.py"},
                         {"python3"},
                         {"python3", "-"},
                         {"python3", ""},
                         {"python3", "-u"},
                         {"python3", "-i", "x.py"},
                         {"python3", "-x", "x.py"},
                         {"python3", "-m"},
                         {"python3", "-X"},
                         {"python3", "--version"},
                         {"uv", "run", "--"},
                         {"uv", "run", "python", "x.py"}};
  for (const Words& command : cases) {
    EXPECT_EQ(taken_apart(command), "-") << (command.empty() ? "" : command.back());
  }
}

TEST(PythonCommand, OfAScriptItsFirstLineSaysWhatStartsIt) {
  const std::pair<const char*, const char*> cases[] = {
      {"#!/usr/bin/python3", "/usr/bin/python3 | script ./x | -m 8"},
      {"#! \t/v/bin/python \t-u  ", "/v/bin/python -u | script ./x | -m 8"},
      {"#!/usr/bin/env python3", "python3 | script ./x | -m 8"},
      {"#!/bin/env -S python3 -u -X utf8", "python3 -u -X utf8 | script ./x | -m 8"},
      {"#!/usr/bin/env -Spython3", "python3 | script ./x | -m 8"},
      {"", "-"},
      {"#!", "-"},
      {"#!/usr/bin/env", "-"},
      {"# /usr/bin/python3", "-"},
      {" #!/usr/bin/python3", "-"},
      {"#!/bin/sh", "-"},
      {"#!/bin/sh -- python3", "-"},
      {"#!/usr/bin/python3\r", "-"},
      {"#!/usr/bin/python3 -u -O", "-"},       // to Python it is one word
      {"#!/usr/bin/env python3 -u", "-"},      // likewise to env
      {"#!/usr/bin/env -S A=1 python3", "-"},  // which changes the environment
      {"#!/usr/bin/env -S 'python3' -u", "-"},
      {"#!/usr/bin/python3 -i", "-"}};
  for (const auto& [line, expected] : cases) {
    EXPECT_EQ(text_of(python_command_by(line, {"./x", "-m", "8"})), expected) << line;
  }
}

TEST(PythonCommand, TheFirstLineIsReadWhereItIsNeeded) {
  const TemporaryDirectory directory;
  const auto taken = [&](const std::string& text, const Words& command) {
    EXPECT_TRUE(write_file_atomic(directory / "x", text).ok());
    return text_of(python_command_in(directory.path(), command));
  };
  const std::string line = "#!/usr/bin/env python3";
  EXPECT_EQ(taken(line + "\nprint(1)\n", {"./x", "1"}), "python3 | script ./x | 1");
  EXPECT_EQ(taken(line, {directory / "x"}), "python3 | script " + (directory / "x") + " |");
  EXPECT_EQ(taken(line, {"python", "x"}), "python | script x |");
  EXPECT_EQ(taken(line, {"x"}), "-") << "it is looked for in PATH";
  EXPECT_EQ(taken(line, {"./y"}), "-");
  EXPECT_EQ(taken("", {"./x"}), "-");
  EXPECT_EQ(taken(line + std::string(300, ' ') + "\n", {"./x"}), "-") << "the kernel reads 256";
}

TEST(PythonCommand, NamesOfModules) {
  for (const char* name : {"torch", "torch.distributed", "_a.b2"}) {
    EXPECT_TRUE(is_module_name(name)) << name;
  }
  for (const char* name : {"", ".", "a.", ".a", "a..b", "2a", "a b", "a,b", "a-b", "a;b"}) {
    EXPECT_FALSE(is_module_name(name)) << name;
  }
}

}  // namespace
}  // namespace hpctl
