// SPDX-License-Identifier: Apache-2.0
// A shell in a real terminal, tmux's, of 120 columns and 40 lines, for one test: what is typed into
// it and what it shows. The directory is the test's, and holds tmux's socket; the destructor ends
// tmux and whatever runs in it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/browser.h"
#include "tests/support/terminal_picture.h"

namespace hpctl::testing {

class TmuxScreen {
 public:
  static constexpr const char* kTmux = "/usr/bin/tmux";
  static constexpr std::chrono::seconds kPatience{60};

  static bool is_installed() { return ::access(kTmux, X_OK) == 0; }

  TmuxScreen(std::string directory, std::vector<std::string> environment)
      : directory_(std::move(directory)), environment_(std::move(environment)) {
    environment_.emplace_back("LC_ALL=C.UTF-8");
  }
  ~TmuxScreen() { tmux({"kill-server"}); }
  TmuxScreen(const TmuxScreen&) = delete;
  TmuxScreen& operator=(const TmuxScreen&) = delete;

  void open() {
    const auto started = tmux({"-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40",
                               "env PS1='ready> ' HISTFILE= /bin/sh"});
    ASSERT_EQ(started.exit_code, 0) << started.err;
    ASSERT_TRUE(shows("ready>"));
  }

  CommandResult tmux(std::vector<std::string> words) const {
    words.insert(words.begin(), {kTmux, "-S", directory_ + "/tmux"});
    return run_command(words, environment_);
  }
  void press(const std::string& key) const { tmux({"send-keys", key}); }
  void run(const std::string& command) const { tmux({"send-keys", command, "Enter"}); }
  void start_top(const std::string& more) const {
    run(std::string(std::getenv("HPCTL_BIN")) + "/hpctl top " + more);
  }
  void resize(const std::string& width, const std::string& height) const {
    tmux({"resize-window", "-x", width, "-y", height});
  }

  std::string text() const { return tmux({"capture-pane", "-p"}).out; }
  // As tmux names it: "alternate_on".
  std::string fact(const std::string& name) const {
    std::string text = tmux({"display-message", "-p", "#{" + name + "}"}).out;
    return text.substr(0, text.find('\n'));
  }
  bool eventually(const std::function<bool()>& done) const {
    return wait_until(directory_, done, kPatience);
  }
  bool shows(const std::string& part) const {
    const bool shown = eventually([&] { return text().find(part) != std::string::npos; });
    EXPECT_TRUE(shown) << "no \"" << part << "\" in\n" << text();
    return shown;
  }

  // Where HPCTL_SCREENSHOTS says and a browser is there: what is seen, as NAME.png.
  void keep(const std::string& name) const {
    const char* directory = std::getenv("HPCTL_SCREENSHOTS");
    if (directory == nullptr || !test::Browser::is_installed()) return;
    const std::string html = test::html_of_terminal(tmux({"capture-pane", "-p", "-e", "-N"}).out);
    const auto browser = test::Browser::start({1280, 1200, false});
    ASSERT_NE(browser, nullptr);
    browser->go("about:blank");
    browser->run("document.documentElement.innerHTML = arguments[0]", {html});
    const std::string picture = browser->screenshot(test::kTerminalElement);
    EXPECT_TRUE(write_file_atomic(directory + ("/" + name + ".png"), picture).ok());
  }

 private:
  const std::string directory_;
  std::vector<std::string> environment_;
};

}  // namespace hpctl::testing
