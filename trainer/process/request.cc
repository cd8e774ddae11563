// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/request.h"

#include <cstdio>

#include "common/base/log.h"
#include "trainer/process/engine.h"
#include "trainer/process/engine_library.h"
#include "trainer/process/pin_environment.h"

namespace hpctl {
namespace {

Result<EngineRequestFunction*> load_function() {
  HP_TRY_ASSIGN(void* const library, load_engine());
  return engine_entry<EngineRequestFunction>(library, kEngineRequestEntry);
}

}  // namespace

int print_answer(const std::string& request) {
  pin_environment();
  const auto function = load_function();
  if (!function.ok()) {
    log_error(function.error().message);
    return 1;
  }
  std::string answer;
  const int status = (*function)(request, answer);
  if (status != 0) return status;
  const bool is_printed = std::puts(answer.c_str()) >= 0 && std::fflush(stdout) == 0;
  return is_printed ? 0 : 1;
}

}  // namespace hpctl
