// SPDX-License-Identifier: Apache-2.0
// hpctl ca: the authority of a head node (common/authority/authority.h). Works on files of this
// machine, beside a cluster controller that runs or without one.
#include <cstdlib>

#include "common/authority/authority.h"
#include "common/base/clock.h"
#include "common/base/host.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace ca_parts {
namespace {

constexpr const char* kHelp = R"(
The authority of a head node's cluster controller, on that machine, as the user that it runs as
(root). Once there is one, HPCTL_CA=DIR in /etc/hpctl/hpcontroller.env has the service prove itself
by certificates that it signs, each for a day; who has a copy of DIR/bundle.pem and the line
HPCTL_CLUSTER_CA=FILE in /etc/hpctl/cluster.conf trusts no other. No key leaves DIR.

  make    make it; where there is one, nothing is changed
  show    who signs, until when, and how far a rotation is
  rotate  have another one follow it: DIR/bundle.pem has both from now on. Copy it to all callers
          within the days of --spread, after which the new one signs; a day and an hour later the
          old one leaves DIR/bundle.pem by itself. While one follows already, nothing is changed

The service does the later steps when their time has come; without one, the next rotate does.
Whatever is interrupted is finished by either.

Examples:
  hpctl ca make
  hpctl ca show --json | jq -r .bundle
  hpctl ca rotate --spread 14

Options:
  --dir DIR      where it is (default: $HPCTL_CA, else /var/lib/hpctl/ca)
  --days N       make, rotate: how long its certificate counts (default: 1825)
  --spread DAYS  rotate: how long the new bundle may take to reach every caller (default: 7); with 0
                 the new one signs at once, and callers without the new bundle are locked out
  --json  {"directory", "bundle", "changed", "authorities": [{"name", "signs", "begins", "ends",
          "serial", "sha256"}], the newest first, "rotation": null or {"signs_from", "leaves"}},
          times in UTC, null where they are not settled yet

Exit codes: 0 done, 1 no authority, damaged or not ours, 2 wrong arguments
)";

constexpr const char* kDefaultDirectory = "/var/lib/hpctl/ca";
constexpr int64_t kDefaultDays = 1'825;
constexpr int64_t kMostDays = 36'500;
constexpr int64_t kDefaultSpreadDays = 7;
constexpr int64_t kMostSpreadDays = 365;
// What a new one must count for besides the days of --spread: until then the next must follow.
constexpr int64_t kLeastUseDays = 30;

std::string directory_of(const Invocation& invocation) {
  if (invocation.has("--dir")) return invocation.options.at("--dir");
  const char* configured = std::getenv("HPCTL_CA");
  return configured != nullptr && *configured != '\0' ? configured : kDefaultDirectory;
}

std::string time_text(int64_t seconds) {
  return format_wall_ms(seconds * 1'000).substr(0, 19) + "Z";
}

nlohmann::ordered_json time_json(int64_t seconds) {
  return seconds == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(time_text(seconds));
}

int show_json(const Terminal& terminal, const AuthorityDirectory& directory,
              const AuthorityState& state, bool changed, int64_t now_s) {
  auto authorities = nlohmann::ordered_json::array();
  const std::string signer = state.signer(now_s).facts.fingerprint;
  for (auto one = state.authorities.rbegin(); one != state.authorities.rend(); ++one) {
    authorities.push_back({{"name", one->facts.name},
                           {"signs", one->facts.fingerprint == signer},
                           {"begins", time_text(one->facts.begins_s)},
                           {"ends", time_text(one->facts.ends_s)},
                           {"serial", one->facts.serial},
                           {"sha256", one->facts.fingerprint}});
  }
  nlohmann::ordered_json rotation;
  if (state.is_rotating()) {
    rotation = {{"signs_from", time_json(state.newest().signs_from_s)},
                {"leaves", time_json(state.leaves_s().value_or(0))}};
  }
  terminal.out << json_text(nlohmann::ordered_json({{"directory", directory.path()},
                                                    {"bundle", directory.bundle_path()},
                                                    {"changed", changed},
                                                    {"authorities", authorities},
                                                    {"rotation", rotation}}))
               << "\n";
  return kExitOk;
}

// What it does now, and next.
std::string part_of(const AuthorityState& state, const Authority& one, int64_t now_s) {
  const bool signs = &one == &state.signer(now_s);
  if (!state.is_rotating()) return one.published_s > 0 ? "signs" : "not in the bundle yet";
  const bool is_new = &one == &state.newest();
  if (is_new && one.published_s == 0) return "not in the bundle yet";
  if (is_new) return signs ? "signs" : "signs from " + time_text(one.signs_from_s);
  const auto leaves_s = state.leaves_s();
  return std::string(signs ? "signs" : "in the bundle") +
         (leaves_s ? ", leaves it after " + time_text(*leaves_s) : "");
}

int show(const Invocation& invocation, const AuthorityDirectory& directory, bool changed) {
  const Terminal& terminal = invocation.terminal;
  const auto state = directory.read();
  if (!state.ok()) return report(terminal, state.error());
  const int64_t now_s = SystemClock().wall_ms() / 1'000;
  if (invocation.json()) return show_json(terminal, directory, *state, changed, now_s);
  terminal.out << "bundle for callers: " << printable(directory.bundle_path()) << "\n";
  for (auto one = state->authorities.rbegin(); one != state->authorities.rend(); ++one) {
    terminal.out << printable(one->facts.name) << "\n"
                 << "  part    " << part_of(*state, *one, now_s) << "\n"
                 << "  counts  until " << time_text(one->facts.ends_s) << "\n"
                 << "  serial  " << one->facts.serial << "\n"
                 << "  SHA-256 " << one->facts.fingerprint << "\n";
  }
  return kExitOk;
}

// Makes or rotates; whether anything was.
Result<bool> change(const Invocation& invocation, int64_t days, int64_t spread_days) {
  using Wait = AuthorityDirectory::Wait;
  const std::string path = directory_of(invocation);
  const int64_t now_s = SystemClock().wall_ms() / 1'000;
  bool changed = false;
  if (invocation.arguments[0] == "make") {
    HP_TRY_ASSIGN(changed, AuthorityDirectory::make(path, host_name(), now_s, days * kDaySeconds));
  }
  HP_TRY_ASSIGN(const auto directory, AuthorityDirectory::open(path));
  // What is due of an earlier rotation comes first: it may make room for another one.
  HP_TRY(directory.advance(now_s, Wait::kForOthers));
  if (invocation.arguments[0] == "rotate") {
    HP_TRY_ASSIGN(changed, directory.begin_rotation(host_name(), now_s, days * kDaySeconds,
                                                    spread_days * kDaySeconds));
    HP_TRY(directory.advance(now_s, Wait::kForOthers));
  }
  return changed;
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const std::string& what = invocation.arguments[0];
  const auto days = number_option(invocation, "--days", 1, kMostDays);
  if (!days.ok()) return report_usage(terminal, "ca", days.error().message);
  const auto spread = number_option(invocation, "--spread", 0, kMostSpreadDays);
  if (!spread.ok()) return report_usage(terminal, "ca", spread.error().message);
  if (what == "show" && days->has_value())
    return report_usage(terminal, "ca", "show takes no --days");
  if (what != "rotate" && spread->has_value()) {
    return report_usage(terminal, "ca", what + " takes no --spread");
  }
  const int64_t lasts = days->value_or(kDefaultDays);
  const int64_t spreads = spread->value_or(kDefaultSpreadDays);
  if (what == "rotate" && lasts < spreads + kLeastUseDays) {
    return report_usage(terminal, "ca",
                        "--days must be at least " + std::to_string(kLeastUseDays) +
                            " more than --spread: the new one signs only after it");
  }
  const auto changed = what == "show" ? Result<bool>(false) : change(invocation, lasts, spreads);
  if (!changed.ok()) return report(terminal, changed.error());
  if (what != "show" && !*changed) {
    terminal.err << (what == "make" ? "hpctl: there is one; nothing was changed\n"
                                    : "hpctl: one follows already; nothing was changed\n");
  }
  const auto directory = AuthorityDirectory::open(directory_of(invocation));
  if (!directory.ok()) return report(terminal, directory.error());
  return show(invocation, *directory, *changed);
}

}  // namespace
}  // namespace ca_parts

Verb ca_verb() {
  return {"ca",
          "make|show|rotate [options]",
          "the authority of a head node: make, show and rotate it",
          ca_parts::kHelp,
          1,
          1,
          {Option{"--dir", nullptr, "DIR"}, Option{"--days", nullptr, "N"},
           Option{"--spread", nullptr, "DAYS"}},
          ca_parts::run,
          {"make", "show", "rotate"}};
}

}  // namespace hpctl
