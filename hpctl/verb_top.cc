// SPDX-License-Identifier: Apache-2.0
// hpctl top: the jobs, or one job, as they change.
#include <unistd.h>

#include <cstdlib>

#include "common/base/clock.h"
#include "hpctl/exit_codes.h"
#include "hpctl/fleet.h"
#include "hpctl/open_job.h"
#include "hpctl/top_feed.h"
#include "hpctl/top_terminal.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace top_parts {
namespace {

constexpr const char* kHelp = R"(
Shows the jobs of this HPCTL_HOME, or with -A all jobs that you may see (`hpctl ps --help`), once a
second. With JOB, it shows the findings of `hpctl watch`, the job's nodes and standbys, its ranks
with their steps, where its time went, and its newest events first. If no controller answers, the
last values stay, with the reason below them.

Keys: arrows, page up and down, home and end; enter opens a job, l its logs and w its explanation
(`hpctl why`), the same letter or esc goes back; s sorts by the next column, r reverses; / filters
by job, name, user, state and node; e shows all ended jobs (instead of the last ten minutes' only);
q or Ctrl-C quits.

If the output is not a terminal, it is printed once.

Examples:
  hpctl top
  hpctl top quickstart
  hpctl top -A

Options:
  -A, --all-users  all jobs that you may see
  --json           print once, as `hpctl ps --json`; with JOB as `hpctl status --json`

Exit codes: 0 quit, 1 no such job, or no terminal, 3 with -A: there is no cluster controller
)";

int print_json(const Terminal& terminal, const std::optional<std::string>& word, bool everywhere) {
  if (word) {
    const auto job = open_job(*word);
    if (!job.ok()) return report(terminal, job.error());
    terminal.out << to_json_text(job->view) << "\n";
    return kExitOk;
  }
  const auto fleet = everywhere ? list_everywhere() : list_home();
  if (!fleet.ok()) return report(terminal, fleet.error());
  terminal.out << fleet_json(*fleet, everywhere, SystemClock().wall()) << "\n";
  return kExitOk;
}

int print_once(const Terminal& terminal, const std::optional<std::string>& word, bool everywhere) {
  TopModel model;
  const auto asked = ask_once(model, word, everywhere);
  if (!asked.ok()) return report(terminal, asked.error());
  for (const std::string& note : model.notes()) {
    terminal.err << "hpctl: " << printable(note) << "\n";
  }
  for (const TopLine& line : model.plain(SystemClock().wall())) terminal.out << line.text << "\n";
  return kExitOk;
}

// False: to quit.
bool take_input(TopModel& model, const TopTerminal::Input& input, TopSize screen) {
  if (std::holds_alternative<TopTerminal::Closed>(input)) return false;
  if (const auto* letter = std::get_if<char>(&input))
    return model.type(*letter, SystemClock().wall());
  if (const auto* key = std::get_if<TopKey>(&input)) {
    model.press(*key, screen, SystemClock().wall());
  }
  return true;
}

void show(TopModel& model, TopFeed& feed, TopTerminal& screen) {
  constexpr int kRedrawMs = 1'000;  // ages grow
  for (bool goes_on = true; goes_on;) {
    feed.look_at(model.subject());
    const TopSize size{screen.width(), screen.height()};
    screen.draw(model.layout(size, SystemClock().wall()));
    for (const auto& input : screen.wait(feed.fd(), kRedrawMs)) {
      goes_on = goes_on && take_input(model, input, {screen.width(), screen.height()});
    }
    feed.take(model);
  }
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const bool everywhere = invocation.has("--all-users");
  std::optional<std::string> word;
  if (!invocation.arguments.empty()) word = invocation.arguments[0];
  if (invocation.json()) return print_json(terminal, word, everywhere);
  if (!terminal.live || ::isatty(STDIN_FILENO) != 1) return print_once(terminal, word, everywhere);
  TopTerminal::hold_signals();
  // An error at the start goes to the terminal before the screen is taken, where it can be read.
  TopModel model;
  const auto asked = ask_once(model, word, everywhere);
  if (!asked.ok()) return report(terminal, asked.error());
  auto screen = TopTerminal::open();
  if (!screen.ok()) return report(terminal, screen.error());
  TopFeed feed(everywhere);
  show(model, feed, **screen);
  screen->reset();
  if (!feed.stop()) {
    // There may be no answer yet. Without destructors nothing waits for it.
    terminal.out.flush();
    std::_Exit(kExitOk);
  }
  return kExitOk;
}

}  // namespace
}  // namespace top_parts

Verb top_verb() {
  return {"top",
          "[JOB] [-A]",
          "the jobs, or one job, as they change",
          top_parts::kHelp,
          0,
          1,
          {{"--all-users", "-A"}},
          top_parts::run};
}

}  // namespace hpctl
