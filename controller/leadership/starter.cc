// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/starter.h"

#include <unistd.h>

#include "common/base/file.h"
#include "common/rpc/controller_process.h"

namespace hpctl {

void Starter::tell(char byte, const Result<cluster::ChildReport>& report) {
  // A starter that no longer waits need not know.
  if (ready_.valid() && byte != 0)
    (void)write_all(ready_.get(), std::string(1, byte), "the starter");
  if (report_.valid()) (void)write_all(report_.get(), cluster::report_line(report), "the starter");
  ready_.reset();
  report_.reset();
}

void Starter::serving(const cluster::ChildReport& where) { tell(kControllerReady, where); }

void Starter::failed(const Error& error) {
  tell(error.code == ErrorCode::kAlreadyExists ? kAnotherControllerRuns : '\0', error);
}

}  // namespace hpctl
