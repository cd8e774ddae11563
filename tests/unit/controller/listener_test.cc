// SPDX-License-Identifier: Apache-2.0
// Who may connect: the kernel's word for the peer's uid, not file permissions, is what decides.
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>

#include "common/base/file.h"
#include "controller/access/local_listener.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

constexpr uid_t kNobody = 65'534;

// Connects as `uid` from a process of its own and reads: 0 = the other side closed without a word,
// 1 = it sent a byte, 2 = no connection.
int connect_as(uid_t uid, const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (uid != ::geteuid() && (::setgroups(0, nullptr) != 0 || ::setuid(uid) != 0)) ::_exit(3);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ::_exit(2);
    char byte = 0;
    ::_exit(::read(fd, &byte, 1) == 1 ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

class Listener : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(make_directories(directory()).ok());
    auto opened = LocalListener::open(
        path(), [this] { return make_directories(directory()); },
        [](UniqueFd connection, uid_t) { EXPECT_EQ(::write(connection.get(), "x", 1), 1); },
        [this](uid_t uid, pid_t) { refused_ = uid; });
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    listener_ = std::move(*opened);
  }
  std::string directory() const { return dir_.path() + "/sockets"; }
  std::string path() const { return directory() + "/socket"; }
  bool is_served_soon() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (::access(path().c_str(), F_OK) != 0 || connect_as(::geteuid(), path()) != 1) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      ::poll(nullptr, 0, 10);
    }
    return true;
  }

  TemporaryDirectory dir_;
  std::atomic<uid_t> refused_{0};
  std::unique_ptr<LocalListener> listener_;
};

TEST_F(Listener, TheOwnUidIsServed) { EXPECT_EQ(connect_as(::geteuid(), path()), 1); }

TEST_F(Listener, AnotherUidIsRefusedEvenWhereFilesAllowIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  EXPECT_EQ(connect_as(kNobody, path()), 2) << "the directory and the socket keep it out";
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0777), 0);
  ASSERT_EQ(::chmod(directory().c_str(), 0777), 0);
  ASSERT_EQ(::chmod(path().c_str(), 0666), 0);
  EXPECT_EQ(connect_as(kNobody, path()), 0) << "the connection must be closed without a word";
  EXPECT_EQ(refused_, kNobody) << "for the audit log";
  EXPECT_EQ(connect_as(0, path()), 1);
}

TEST_F(Listener, TheSocketIsGoneAfterwards) {
  listener_->stop();
  EXPECT_NE(::access(path().c_str(), F_OK), 0);
}

TEST_F(Listener, ARemovedSocketIsThereAgain) {
  ASSERT_EQ(::unlink(path().c_str()), 0);
  EXPECT_TRUE(is_served_soon());
  ASSERT_TRUE(remove_tree(directory()).ok());
  EXPECT_TRUE(is_served_soon());
}

TEST_F(Listener, TheFileOfASuccessorIsLeftAlone) {
  ASSERT_EQ(::unlink(path().c_str()), 0);
  ASSERT_TRUE(write_file_atomic(path(), "another's").ok());
  listener_->stop();
  EXPECT_EQ(::access(path().c_str(), F_OK), 0);
}

TEST(PeerUids, UnknownPeersAreNobody) {
  PeerUids peers;
  peers.remember(7, 1000);
  EXPECT_EQ(peers.of("fd:7"), 1000U);
  EXPECT_FALSE(peers.of("ipv4:127.0.0.1:80"));
  EXPECT_FALSE(may_connect(1000, 1001));
  EXPECT_TRUE(may_connect(0, 1001));
}

TEST(ListenerPath, TooLongIsAnError) {
  const auto opened = LocalListener::open("/tmp/" + std::string(200, 'x'), {}, {}, {});
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace hpctl
