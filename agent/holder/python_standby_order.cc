// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/python_standby_order.h"

#include <array>
#include <cstdio>
#include <string_view>

#include "agent/holder/python_standby.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/utf8.h"

namespace hpctl {

std::string_view python_standby_text() { return kPythonStandby; }

std::vector<std::string> python_standby_command(const PythonCommand& python,
                                                const std::string& modules,
                                                const PythonStandbyDescriptors& descriptors) {
  constexpr const char* kBoot =
      "exec(compile(open(int(__import__('sys').argv[1])).read(), 'hpctl standby', 'exec'), "
      "{'__name__': 'hpctl standby'})";
  std::vector<std::string> command = python.interpreter;
  command.insert(
      command.end(),
      {"-c", kBoot, std::to_string(descriptors.text), std::to_string(descriptors.control),
       std::to_string(descriptors.output), modules, to_word(python.main), python.target});
  command.insert(command.end(), python.arguments.begin(), python.arguments.end());
  return command;
}

namespace {

using nlohmann::json;

// Arguments and variables are bytes. Python takes one that is not UTF-8 as a lone surrogate
// (PEP 383), which its json module reads from \udcXX and its exec turns back into the byte.
std::string quoted_for_python(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    size_t length = 0;
    while (const size_t more = utf8_sequence_length(text.substr(length))) length += more;
    const std::string run = json_text(json(std::string(text.substr(0, length))));
    quoted.append(run, 1, run.size() - 2);
    text.remove_prefix(length);
    if (text.empty()) break;
    std::array<char, 8> escape{};
    std::snprintf(escape.data(), escape.size(), "\\udc%02x", static_cast<unsigned char>(text[0]));
    quoted += escape.data();
    text.remove_prefix(1);
  }
  return quoted + "\"";
}

std::string list_for_python(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ",") + quoted_for_python(text);
  return "[" + list + "]";
}

}  // namespace

std::string python_standby_document(const PythonStandbyPart& part) {
  return "{\"argv\":" + list_for_python(part.argv) + ",\"env\":" + list_for_python(part.env) +
         ",\"signals\":" + json_text(json(part.signals)) + "}";
}

}  // namespace hpctl
