// SPDX-License-Identifier: Apache-2.0
#include "hpctl/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <iostream>

#include "common/base/fd.h"
#include "hpctl/exit_codes.h"

namespace hpctl {

void open_standard_streams() {
  int fd = -1;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  const UniqueFd one_more(fd);
}

int finish_output(int status) {
  std::cout.flush();
  pollfd out{STDOUT_FILENO, 0, 0};
  const bool no_reader = ::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
  if (std::cout.good() || no_reader) return status;
  std::cerr << "hpctl: the output could not be written; is there space where it goes?\n";
  return status == kExitOk ? kExitFailed : status;
}

}  // namespace hpctl
