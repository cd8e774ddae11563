// SPDX-License-Identifier: Apache-2.0
// Stands in for the agent proper under a real holder: hands its end of the socket pair to the test,
// which listens on the Unix socket named by argv[1], and waits to be killed.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "agent/holder/holder_protocol.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, argv[1], sizeof(address.sun_path) - 1);
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return 3;
  pid_t pid = ::getpid();
  iovec part{&pid, sizeof(pid)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &hpctl::holder::kAgentSocketFd, sizeof(int));
  if (::sendmsg(fd, &message, MSG_NOSIGNAL) < 0) return 4;
  ::close(hpctl::holder::kAgentSocketFd);
  for (;;) ::pause();
}
