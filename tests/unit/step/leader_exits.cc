// SPDX-License-Identifier: Apache-2.0
// A process on its way out that cannot be waited for yet, for as long as a test needs it: its first
// thread has exited, another one pauses until a signal ends the process.
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

int main() {
  std::thread other([] { ::pause(); });
  ::syscall(SYS_exit, 0);
  other.join();  // is not reached
}
