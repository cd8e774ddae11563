// SPDX-License-Identifier: Apache-2.0
#include "tests/support/browser.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "common/base/file.h"
#include "common/net/port.h"
#include "common/process/process_stat.h"
#include "tests/support/http_get.h"
#include "tests/support/processes.h"

namespace hpctl::test {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

constexpr const char* kDriver = "/usr/bin/chromedriver";
constexpr const char* kChromium = "/usr/bin/chromium";
constexpr std::chrono::seconds kPatience{60};
constexpr int kLeastWindowWidth = 500;  // of Chromium; a narrower --window-size is not followed

std::string decode_base64(const std::string& text) {
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const std::string_view digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = digits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(static_cast<char>(bits >> held & 0xff));
  }
  return bytes;
}

// Whether anybody of this group of processes is neither gone nor a zombie.
bool group_runs(pid_t group) {
  constexpr int kGroupField = 5;
  const auto names = list_directory("/proc");
  if (!names.ok()) return false;
  return std::any_of(names->begin(), names->end(), [&](const std::string& name) {
    if (name.find_first_not_of("0123456789") != std::string::npos) return false;
    const auto pid = static_cast<pid_t>(std::stoi(name));
    return process_stat(pid, kGroupField) == std::to_string(group) && process_runs(pid);
  });
}

}  // namespace

bool Browser::is_installed() { return is_accessible(kDriver) && is_accessible(kChromium); }

std::unique_ptr<Browser> Browser::start(const Window& window) {
  std::unique_ptr<Browser> browser(new Browser);
  browser->port_ = choose_free_port().value();
  const std::string port = "--port=" + std::to_string(browser->port_);
  const std::string log = browser->directory_.path() + "/log";
  browser->driver_ = ::fork();
  if (browser->driver_ == 0) {
    ::setpgid(0, 0);
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    // What is left of a Chromium that was killed goes with the directory.
    for (const char* name : {"HOME", "TMPDIR"}) {
      ::setenv(name, browser->directory_.path().c_str(), 1);
    }
    ::execl(kDriver, kDriver, port.c_str(), nullptr);
    ::_exit(127);
  }
  const auto until = steady_clock::now() + kPatience;
  while (browser->call("GET", "/status").value("ready", false) != true) {
    if (steady_clock::now() > until) {
      ADD_FAILURE() << "chromedriver does not answer: " << read_file(log).value();
      return nullptr;
    }
    ::poll(nullptr, 0, 20);
  }
  json arguments = {
      "--headless=new",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-dev-shm-usage",
      "--hide-scrollbars",
      "--window-size=" + std::to_string(window.width) + "," + std::to_string(window.height),
      "--user-data-dir=" + browser->directory_.path() + "/profile"};
  if (window.dark) arguments.push_back("--force-dark-mode");
  const json session =
      browser->call("POST", "/session",
                    {{"capabilities",
                      {{"alwaysMatch",
                        {{"goog:chromeOptions", {{"args", arguments}, {"binary", kChromium}}},
                         {"goog:loggingPrefs", {{"browser", "ALL"}}}}}}}});
  if (!session.is_object() || !session.contains("sessionId")) {
    ADD_FAILURE() << "Chromium does not start: " << session.dump() << read_file(log).value();
    return nullptr;
  }
  browser->session_ = "/session/" + session["sessionId"].get<std::string>();
  if (window.width < kLeastWindowWidth) browser->emulate_screen(window);
  return browser;
}

Browser::~Browser() {
  if (!session_.empty()) call("DELETE", session_);
  if (driver_ <= 0) return;
  ::kill(-driver_, SIGKILL);
  ::waitpid(driver_, nullptr, 0);
  // Chromium's processes may end after it, and write into what is removed next.
  const auto until = steady_clock::now() + kPatience;
  while (group_runs(driver_) && steady_clock::now() < until) ::poll(nullptr, 0, 5);
}

json Browser::call(const std::string& method, const std::string& path, const json& body) {
  const std::string text = body.is_null() ? "" : body.dump();
  const std::string head = method + " " + path +
                           " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                           "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n";
  const std::string answer = http_send(port_, head + text);
  const size_t end = answer.find("\r\n\r\n");
  json parsed = json::parse(end == std::string::npos ? "" : answer.substr(end + 4), nullptr, false);
  if (!parsed.is_object() || !parsed.contains("value")) return json::object();
  return parsed["value"];
}

// chromedriver hands the command of the DevTools protocol on.
void Browser::emulate_screen(const Window& window) {
  const json value = call("POST", session_ + "/goog/cdp/execute",
                          {{"cmd", "Emulation.setDeviceMetricsOverride"},
                           {"params",
                            {{"width", window.width},
                             {"height", window.height},
                             {"deviceScaleFactor", 1},
                             {"mobile", false}}}});
  EXPECT_FALSE(value.contains("error")) << value.dump();
}

void Browser::go(const std::string& url) {
  const json value = call("POST", session_ + "/url", {{"url", url}});
  EXPECT_TRUE(value.is_null()) << value.dump();
}

json Browser::run(const std::string& script, const json& arguments) {
  json value =
      call("POST", session_ + "/execute/sync",
           {{"script", script}, {"args", arguments.is_null() ? json::array() : arguments}});
  if (value.is_object() && value.contains("error")) ADD_FAILURE() << script << ": " << value.dump();
  return value;
}

bool Browser::wait_for(const std::string& script) {
  const auto until = steady_clock::now() + kPatience;
  while (run(script) != true) {
    if (steady_clock::now() > until || ::testing::Test::HasFailure()) return false;
    ::poll(nullptr, 0, 50);
  }
  return true;
}

void Browser::press(const std::string& keys) {
  const json element = call("GET", session_ + "/element/active");
  ASSERT_TRUE(element.is_object()) << element.dump();
  call("POST", session_ + "/element/" + element.begin().value().get<std::string>() + "/value",
       {{"text", keys}});
}

std::string Browser::complaints() {
  std::string told;
  for (const json& line : call("POST", session_ + "/se/log", {{"type", "browser"}})) {
    told += line.value("level", "") + ": " + line.value("message", "") + "\n";
  }
  return told;
}

std::string Browser::screenshot(const std::string& selector) {
  const json element =
      call("POST", session_ + "/element", {{"using", "css selector"}, {"value", selector}});
  const std::string id = element.begin().value().get<std::string>();
  return decode_base64(call("GET", session_ + "/element/" + id + "/screenshot").get<std::string>());
}

}  // namespace hpctl::test
