// SPDX-License-Identifier: Apache-2.0
// hpctl open: a link to the status page.

#include "common/base/json.h"
#include "hpctl/controller_client.h"
#include "hpctl/exit_codes.h"
#include "hpctl/open_job.h"
#include "hpctl/submit_directory.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace open_parts {
namespace {

constexpr const char* kHelp = R"(
Prints a link to the status page of the controller: all of the home's jobs, or of a Slurm job the
one that it has. The link counts once, within ten minutes; the browser that follows it keeps the
session for a day. The page shows what `hpctl ps`, status, why, events and goodput do, as it
changes, and can change nothing. Of a local job, or without one, a controller is started where none
runs.

The page is served from the first link on, at the loopback address of the controller's machine
unless HPCTL_PAGE (HOST:PORT) was set when it started. From another machine forward the port:
ssh -L PORT:127.0.0.1:PORT MACHINE, and follow the link as it is.

Examples:
  hpctl open
  hpctl open quickstart
  hpctl open quickstart --json | jq -r .url | xargs xdg-open

Options:
  --json  {"url", "node"}

Exit codes: 0 printed, 1 no such job, 3 no controller answers
)";

Result<v1::OpenPageResponse> ask(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    HP_TRY_ASSIGN(const HomePaths paths, home_from_environment());
    HP_TRY_ASSIGN(const auto client, ControllerClient::ensure(paths));
    return client->open_page("");
  }
  HP_TRY_ASSIGN(const OpenJob job, open_job(arguments[0]));
  if (auto* live = dynamic_cast<ControllerClient*>(job.source.get())) {
    return live->open_page(to_string(job.id));
  }
  if (is_slurm_job(job.paths, job.id)) {
    return Error{ErrorCode::kUnavailable,
                 "no controller of job " + to_string(job.id) +
                     " answers; hpctl status and hpctl why show what it left"};
  }
  HP_TRY_ASSIGN(const auto client, ControllerClient::ensure(job.paths));
  return client->open_page(to_string(job.id));
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto opened = ask(invocation.arguments);
  if (!opened.ok()) return report(terminal, opened.error());
  if (invocation.json()) {
    terminal.out << nlohmann::ordered_json{{"url", opened->url()}, {"node", opened->node()}}.dump()
                 << "\n";
    return kExitOk;
  }
  terminal.out << opened->url() << "\n";
  if (!terminal.live) return kExitOk;
  const std::string& url = opened->url();
  terminal.err << "It counts once, within ten minutes.";
  const std::string loopback = "http://127.0.0.1:";
  if (url.starts_with(loopback)) {
    const std::string port =
        url.substr(loopback.size(), url.find('/', loopback.size()) - loopback.size());
    terminal.err << " From another machine first: ssh -L " << port << ":127.0.0.1:" << port << " "
                 << opened->node();
  }
  terminal.err << "\n";
  return kExitOk;
}

}  // namespace
}  // namespace open_parts

Verb open_verb() {
  return {"open", "[JOB]",        "a link to the status page", open_parts::kHelp, 0, 1,
          {},     open_parts::run};
}

}  // namespace hpctl
