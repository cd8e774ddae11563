// SPDX-License-Identifier: Apache-2.0
// A start waits for its env.files, read beside the loop; the newest start gets them.
#include "agent/environment_files.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <string>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::agent {
namespace {

class StartFiles : public ::testing::Test {
 protected:
  v1::StartWorkers start(uint64_t generation) const {
    v1::StartWorkers start;
    start.set_generation(generation);
    start.add_env_files(path_);
    (*start.mutable_env())["SET"] = "by env.set";
    return start;
  }
  // What take() gives once the files have been read as often as they must.
  std::optional<EnvironmentFiles::Read> await() {
    while (files_.is_busy()) {
      pollfd ready{wake_.get(), POLLIN, 0};
      EXPECT_EQ(::poll(&ready, 1, 60'000), 1);
      uint64_t count = 0;
      EXPECT_EQ(::read(wake_.get(), &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
      if (auto read = files_.take()) return read;
    }
    return std::nullopt;
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/keys.env";
  UniqueFd wake_{::eventfd(0, EFD_CLOEXEC)};
  EnvironmentFiles files_{wake_.get()};
};

TEST_F(StartFiles, AddVariablesBelowThoseOfEnvSet) {
  ASSERT_TRUE(write_file_atomic(path_, "KEY=1\nSET=by the file\n").ok());
  files_.read(start(2));
  const auto read = await();
  ASSERT_TRUE(read);
  ASSERT_TRUE(read->outcome.ok()) << read->outcome.error().message;
  EXPECT_EQ(read->start.generation(), 2U);
  EXPECT_EQ(read->start.env().at("KEY"), "1");
  EXPECT_EQ(read->start.env().at("SET"), "by env.set");
}

TEST_F(StartFiles, MissingFileIsAnErrorOfTheStart) {
  files_.read(start(2));
  const auto read = await();
  ASSERT_TRUE(read);
  ASSERT_FALSE(read->outcome.ok());
  EXPECT_EQ(read->outcome.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read->start.env().size(), 1U);
}

TEST_F(StartFiles, NewestStartGetsThem) {
  ASSERT_TRUE(write_file_atomic(path_, "KEY=1\n").ok());
  files_.read(start(2));
  files_.read(start(3));
  const auto read = await();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->start.generation(), 3U);
  EXPECT_FALSE(await()) << "once";
}

TEST_F(StartFiles, WithdrawnStartGetsNone) {
  ASSERT_TRUE(write_file_atomic(path_, "KEY=1\n").ok());
  files_.read(start(3));
  EXPECT_FALSE(files_.withdraw(2)) << "of an earlier generation";
  const auto back = files_.withdraw(3);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->generation(), 3U);
  EXPECT_FALSE(await());
}

}  // namespace
}  // namespace hpctl::agent
