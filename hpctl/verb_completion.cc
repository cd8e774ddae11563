// SPDX-License-Identifier: Apache-2.0
// hpctl completion: what a shell needs to complete hpctl's command line.

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/completion.h"
#include "hpctl/exit_codes.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace completion_parts {
namespace {

constexpr const char* kHelp = R"help(
Prints a script that lets the shell complete verbs, options, files and numbers of jobs. The Debian
packages install all three (docs/install.md); elsewhere it is for a line of the shell's start file,
or a file where the shell looks.

Examples:
  eval "$(hpctl completion bash)"                                      ~/.bashrc
  eval "$(hpctl completion zsh)"                                       ~/.zshrc, after compinit
  hpctl completion fish > ~/.config/fish/completions/hpctl.fish

Options:
  --json  {"shell", "script"}

Exit codes: 0 printed, 2 wrong arguments
)help";

int run(Invocation& invocation) {
  // The parser has let no other word through.
  const std::string& shell = invocation.arguments[0];
  const std::string script = shell == "bash"  ? bash_completion(verbs())
                             : shell == "zsh" ? zsh_completion(verbs())
                                              : fish_completion(verbs());
  if (invocation.json()) {
    const nlohmann::ordered_json document = {{"shell", shell}, {"script", script}};
    invocation.terminal.out << json_text(document) << "\n";
  } else {
    invocation.terminal.out << script;
  }
  return kExitOk;
}

}  // namespace
}  // namespace completion_parts

Verb completion_verb() {
  return {"completion",
          "bash|zsh|fish",
          "print what a shell needs to complete hpctl's words",
          completion_parts::kHelp,
          1,
          1,
          {},
          completion_parts::run,
          {"bash", "zsh", "fish"}};
}

}  // namespace hpctl
