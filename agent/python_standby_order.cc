// SPDX-License-Identifier: Apache-2.0
#include "agent/python_standby_order.h"

#include "agent/python_standby.h"
#include "common/base/json_text.h"

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

std::string python_standby_document(const PythonStandbyPart& part) {
  using nlohmann::json;
  return json_text(json{{"argv", part.argv}, {"env", part.env}, {"signals", part.signals}});
}

}  // namespace hpctl
