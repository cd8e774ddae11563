// SPDX-License-Identifier: Apache-2.0
#include "common/base/failpoint.h"

#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>

namespace hpctl {
namespace {

struct Armed {
  std::string name;
  long remaining = 1;
};

const bool kIsArmed = std::getenv("HPCTL_FAILPOINT") != nullptr;

Armed parse_environment() {
  const char* text = std::getenv("HPCTL_FAILPOINT");
  Armed armed;
  if (text == nullptr) return armed;
  armed.name = text;
  if (const auto colon = armed.name.rfind(':'); colon != std::string::npos) {
    armed.remaining = std::strtol(armed.name.c_str() + colon + 1, nullptr, 10);
    armed.name.resize(colon);
  }
  return armed;
}

}  // namespace

bool failpoint_due(const char* name) {
  if (!kIsArmed) return false;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  static Armed armed = parse_environment();
  return armed.name == name && --armed.remaining == 0;
}

void failpoint_passed(const char* name) {
  if (failpoint_due(name)) ::raise(SIGKILL);
}

}  // namespace hpctl
