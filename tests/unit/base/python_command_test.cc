// SPDX-License-Identifier: Apache-2.0
#include "common/base/python_command.h"

#include <gtest/gtest.h>

namespace hpctl {
namespace {

using Words = std::vector<std::string>;

// "INTERPRETER | KIND TARGET | ARGUMENTS", or "-".
std::string taken_apart(const Words& command) {
  const auto python = python_command(command);
  if (!python) return "-";
  std::string text;
  for (const std::string& word : python->interpreter) text += word + " ";
  text += std::string("| ") + to_word(python->main) + " " + python->target + " |";
  for (const std::string& word : python->arguments) text += " " + word;
  return text;
}

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
