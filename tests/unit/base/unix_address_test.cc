// SPDX-License-Identifier: Apache-2.0
#include "common/net/unix_address.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "common/base/fd.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

TEST(UnixAddress, HasRoomForSoManyBytes) {
  EXPECT_TRUE(UnixAddress::of(std::string(UnixAddress::kMaxPathBytes, 'x')));
  const std::string longer(UnixAddress::kMaxPathBytes + 1, 'x');
  EXPECT_FALSE(UnixAddress::of(longer));
  EXPECT_EQ(unix_listener_trouble(longer), 0) << "it is not asked";
}

TEST(UnixAddress, SomebodyListensThereOrNot) {
  const TemporaryDirectory directory;
  const std::string path = directory / "socket";
  EXPECT_EQ(unix_listener_trouble(path), ENOENT);
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = UnixAddress::of(path).value();
  ASSERT_EQ(::bind(listener.get(), address.get(), address.size()), 0);
  EXPECT_EQ(unix_listener_trouble(path), ECONNREFUSED);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  for (int i = 0; i < 4; ++i) {  // from the second on its queue is full
    EXPECT_EQ(unix_listener_trouble(path), 0) << i;
  }
  listener.reset();
  EXPECT_EQ(unix_listener_trouble(path), ECONNREFUSED) << "the file is still there";
}

}  // namespace
}  // namespace hpctl
