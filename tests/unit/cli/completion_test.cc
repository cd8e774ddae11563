// SPDX-License-Identifier: Apache-2.0
// What a shell offers is what --help names: bash itself completes, with the script that hpctl
// prints.
#include "hpctl/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "hpctl/exit_codes.h"
#include "hpctl/verbs.h"
#include "tests/support/command_run.h"
#include "tests/support/program_output.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::testing {
namespace {

using test::run_hpctl;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSubsetOf;
using Words = std::vector<std::string>;

Words split(const std::string& text) {
  std::istringstream in(text);
  Words words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

class BashCompletion : public ::testing::Test {
 protected:
  BashCompletion() {
    EXPECT_TRUE(write_file_atomic(script_, run_hpctl({"completion", "bash"}).out).ok());
    for (const char* job : {"7", "12", "submit-key"}) {
      EXPECT_TRUE(make_directories(directory_.path() + "/jobs/" + job).ok());
    }
    EXPECT_TRUE(write_file_atomic(directory_.path() + "/plan.yaml", "").ok());
  }

  // What bash offers for the last of these words, which readline has broken at =.
  Words offered(const std::string& line) const {
    const ProgramOutput bash =
        run_program("cd " + directory_.path() + " && HPCTL_HOME=" + directory_.path() +
                    " bash --norc -c 'set -u; . " + script_ + "; COMP_WORDS=(hpctl " + line +
                    "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _hpctl; "
                    "[ ${#COMPREPLY[@]} -eq 0 ] || printf \"%s\\n\" \"${COMPREPLY[@]}\"' 2>&1");
    EXPECT_EQ(bash.status, 0) << bash.text;
    return split(bash.text);
  }

  TemporaryDirectory directory_;
  std::string script_ = directory_.path() + "/hpctl.bash";
};

TEST_F(BashCompletion, EveryVerbOfTheOverview) {
  const std::string overview = run_hpctl({"--help"}).out;
  const Words words = offered("\"\"");
  const std::regex line(R"(\n  ([a-z]+) +[a-z])");
  size_t found = 0;
  const size_t end = overview.find("\n\n", overview.find("Verbs:"));
  const std::string verbs_of_help = overview.substr(0, end);
  for (std::sregex_iterator at(verbs_of_help.begin(), verbs_of_help.end(), line), none; at != none;
       ++at, ++found) {
    EXPECT_THAT(words, Contains((*at)[1].str()));
    EXPECT_THAT(offered("help \"\""), Contains((*at)[1].str()));
  }
  EXPECT_EQ(found, verbs().size());
  EXPECT_THAT(offered("ch"), ElementsAre("checkpoint", "chaos"));
  EXPECT_THAT(offered("--json st"), ElementsAre("status"));
  EXPECT_THAT(offered("-"), AllOf(Contains("--help"), Contains("--version")));
}

// Both ways: an option that help names is offered, and none is that help does not name.
TEST_F(BashCompletion, EveryOptionThatHelpNames) {
  const std::regex option(R"(\n +(?:(-[a-zA-Z]), )?(--[a-z-]+))");
  for (const Verb& verb : verbs()) {
    const std::string help = run_hpctl({verb.name, "--help"}).out;
    std::set<std::string> named = {"--help", "-h", "--json"};
    const size_t options = help.find("\nOptions");
    const std::string list = options == std::string::npos ? "" : help.substr(options);
    for (std::sregex_iterator at(list.begin(), list.end(), option), none; at != none; ++at) {
      if ((*at)[1].matched) named.insert((*at)[1].str());
      named.insert((*at)[2].str());
    }
    const Words words = offered(std::string(verb.name) + " -");
    EXPECT_EQ(std::set<std::string>(words.begin(), words.end()), named) << verb.name;
  }
}

// Of the usage, where small letters are words of their own and capitals stand for something.
TEST_F(BashCompletion, EveryActionThatHelpNames) {
  for (const Verb& verb : verbs()) {
    const std::string usage = std::regex_replace(
        std::string(verb.arguments), std::regex(R"(--?[A-Za-z-]+|\[(filters|options)\])"), "");
    std::set<std::string> named;
    const std::regex word("[a-z]+");
    for (std::sregex_iterator at(usage.begin(), usage.end(), word), none; at != none; ++at) {
      named.insert(at->str());
    }
    EXPECT_EQ(std::set<std::string>(verb.actions.begin(), verb.actions.end()), named) << verb.name;
    const Words words = offered(std::string(verb.name) + " \"\"");
    EXPECT_THAT(named, IsSubsetOf(words)) << verb.name;
  }
}

TEST_F(BashCompletion, WhatWordsStandFor) {
  EXPECT_THAT(offered("submit pl"), ElementsAre("plan.yaml"));
  EXPECT_THAT(offered("submit --chaos pl"), ElementsAre("plan.yaml"));
  EXPECT_THAT(offered("submit --chaos = pl"), ElementsAre("plan.yaml"));
  EXPECT_THAT(offered("submit --chaos ="), Contains("plan.yaml"));
  EXPECT_THAT(offered("status \"\""), ElementsAre("12", "7"));
  EXPECT_THAT(offered("logs --tail 3 1"), ElementsAre("12"));
  EXPECT_THAT(offered("logs --tail \"\""), ElementsAre());
  EXPECT_THAT(offered("nodes re"), ElementsAre("release", "reboot", "replace"));
  EXPECT_THAT(offered("checkpoint ls pl"), ElementsAre("plan.yaml"));
  EXPECT_THAT(offered("nodes quarantine re"), ElementsAre());
}

// Their shells may be absent; each verb, and each option of it, has its line all the same.
TEST(Completion, OtherShellsHaveTheWholeTable) {
  const std::string zsh = run_hpctl({"completion", "zsh"}).out;
  const std::string fish = run_hpctl({"completion", "fish"}).out;
  for (const Verb& verb : verbs()) {
    const std::string name = verb.name;
    const size_t begin = zsh.find("    " + name + ")\n");
    ASSERT_NE(begin, std::string::npos) << name;
    const std::string part = zsh.substr(begin, zsh.find(";;", begin) - begin);
    const std::string summary =
        std::regex_replace(std::string(verb.summary), std::regex("'"), "'\\''");
    EXPECT_THAT(fish, HasSubstr("-a " + name + " -d '" + summary + "'"));
    for (const Option& option : options_of(verb)) {
      EXPECT_THAT(part, HasSubstr("'" + std::string(option.name))) << name;
      EXPECT_THAT(fish, HasSubstr("from " + name + "' -l " + std::string(option.name).substr(2)))
          << name;
    }
  }
  EXPECT_EQ(run_hpctl({"completion", "tcsh"}).status, kExitUsage);
  EXPECT_THAT(run_hpctl({"completion", "tcsh"}).err, HasSubstr("expected bash, zsh or fish"));
  EXPECT_THAT(run_hpctl({"completion", "fish", "--json"}).out, HasSubstr("{\"shell\":\"fish\""));
}

}  // namespace
}  // namespace hpctl::testing
