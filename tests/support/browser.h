// SPDX-License-Identifier: Apache-2.0
// A real Chromium without a window, steered by chromedriver's WebDriver protocol
// (https://www.w3.org/TR/webdriver2/). One per test; the destructor ends both programs. Its profile
// is a directory of its own.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "common/base/json.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::test {

class Browser {
 public:
  struct Window {
    int width = 1280;  // of the page; Chromium's own windows are never narrower than 500
    int height = 900;
    bool dark = false;
  };
  // Whether Chromium and its driver are installed.
  static bool is_installed();
  // Fails the test and returns null when they do not start.
  static std::unique_ptr<Browser> start(const Window& window);
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  void go(const std::string& url);
  // What the body of a function returns there; "arguments" are its JSON values.
  nlohmann::json run(const std::string& script, const nlohmann::json& arguments = {});
  // Until `script` returns true; false after a minute.
  bool wait_for(const std::string& script);
  // Presses keys as WebDriver names them ("\uE004" is Tab) on what has the focus.
  void press(const std::string& keys);
  // What the page has complained of: errors of its script, and what its policy forbade.
  std::string complaints();
  // Of the element that the CSS selector names, as far as the window shows it; a PNG.
  std::string screenshot(const std::string& selector);

 private:
  Browser() = default;
  // The answer's "value".
  nlohmann::json call(const std::string& method, const std::string& path,
                      const nlohmann::json& body = {});
  // Lays the page out for a screen of this size, whatever the window's, as DevTools do for phones.
  void emulate_screen(const Window& window);

  TemporaryDirectory directory_;
  pid_t driver_ = -1;
  uint16_t port_ = 0;
  std::string session_;
};

}  // namespace hpctl::test
