// SPDX-License-Identifier: Apache-2.0
// The starter of this controller, which waits for the result: a program beside us, which gets a
// byte (common/rpc/controller_process.h), or the cluster controller, which gets the address or the
// reason (controller/leadership/child_protocol.h). Each gets it once; later calls do nothing.
#pragma once

#include <string>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "controller/leadership/child_protocol.h"

namespace hpctl {

class Starter {
 public:
  // -1 = no starter of this kind. Owns both.
  Starter(int ready_fd, int report_fd) : ready_(ready_fd), report_(report_fd) {}

  // Empty = only our local socket, or a separate service.
  void serving(const cluster::ChildReport& where = {});
  // kAlreadyExists = another controller has the job or the home.
  void failed(const Error& error);

 private:
  void tell(char byte, const Result<cluster::ChildReport>& report);

  UniqueFd ready_;
  UniqueFd report_;
};

}  // namespace hpctl
