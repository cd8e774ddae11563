// SPDX-License-Identifier: Apache-2.0
// hpctl version: this program's version, and that of the controller if one runs.

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/controller_client.h"
#include "hpctl/exit_codes.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace version_parts {
namespace {

constexpr const char* kHelp = R"(
The version of hpctl and, if a controller runs for this HPCTL_HOME, the controller's version,
process id and the address of its metrics.

Examples:
  hpctl version
  curl http://$(hpctl version --json | jq -r .controller.metrics)/metrics

Options:
  --json  {"version", "controller": {"version", "pid", "node", "metrics"} or null}

Exit codes: 0
)";

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  std::optional<v1::GetVersionResponse> controller;
  if (const auto paths = home_from_environment(); paths.ok()) {
    if (const auto client = ControllerClient::connect(*paths)) {
      if (const auto answer = client->version(); answer.ok()) controller = *answer;
    }
  }
  if (invocation.json()) {
    nlohmann::ordered_json document = {{"version", HPCTL_VERSION}, {"controller", nullptr}};
    if (controller) {
      document["controller"] = {{"version", controller->version()},
                                {"pid", controller->pid()},
                                {"node", controller->node()},
                                {"metrics", controller->metrics()}};
    }
    terminal.out << json_text(document) << "\n";
    return kExitOk;
  }
  terminal.out << "hpctl " << HPCTL_VERSION << "\n";
  if (controller) {
    terminal.out << "controller " << controller->version() << ", pid " << controller->pid()
                 << " on " << controller->node();
    if (!controller->metrics().empty()) {
      terminal.out << ", metrics http://" << controller->metrics() << "/metrics";
    }
    terminal.out << "\n";
  }
  return kExitOk;
}

}  // namespace
}  // namespace version_parts

Verb version_verb() {
  return {"version", "", "show versions", version_parts::kHelp, 0, 0, {}, version_parts::run};
}

}  // namespace hpctl
