// SPDX-License-Identifier: Apache-2.0
// The copy of a program on a local disk, and memory that stays.
#include "agent/holder/local_programs.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>

#include "agent/holder/locked_memory.h"
#include "tests/unit/agent/node_fixture.h"

namespace hpctl::holder {
namespace {

using test::text_of;

class Copies : public ::testing::Test {
 protected:
  Copies() {
    for (const char* directory : {"/release/bin", "/release/lib", "/copies"}) {
      EXPECT_TRUE(make_directories(home_.path() + directory).ok());
    }
    release("of the first release");
  }
  void release(const std::string& text) const {
    EXPECT_TRUE(write_file_atomic(files_[0], "program " + text).ok());
    EXPECT_TRUE(write_file_atomic(files_[1], "library " + text).ok());
  }
  LocalCopy copy() const {
    auto made = copy_programs(files_, base_);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return made.ok() ? std::move(*made) : LocalCopy{};
  }
  static std::string library_of(const LocalCopy& copy) {
    return copy.program.substr(0, copy.program.size() - std::strlen("bin/hpagent")) + "lib/libx.so";
  }

  test::TemporaryHome home_;
  const std::string base_ = home_.path() + "/copies";
  const std::vector<std::string> files_ = {home_.path() + "/release/bin/hpagent",
                                           home_.path() + "/release/lib/libx.so"};
};

ino_t inode_of(const std::string& path) {
  struct stat st {};
  EXPECT_EQ(::stat(path.c_str(), &st), 0) << path;
  return st.st_ino;
}

TEST_F(Copies, JobsOfOneReleaseShareACopy) {
  const LocalCopy first = copy();
  EXPECT_EQ(text_of(first.program), "program of the first release");
  EXPECT_EQ(text_of(library_of(first)), "library of the first release");
  EXPECT_EQ(::access(first.program.c_str(), X_OK), 0);
  const ino_t inode = inode_of(first.program);
  const LocalCopy second = copy();
  EXPECT_EQ(second.program, first.program);
  EXPECT_EQ(inode_of(second.program), inode) << "it is not copied again";
}

TEST_F(Copies, DamagedCopyIsReplaced) {
  const std::string program = copy().program;
  const std::string library = library_of({program, UniqueFd()});
  EXPECT_TRUE(write_file_atomic(library, "something else").ok());
  EXPECT_EQ(text_of(library_of(copy())), "library of the first release");
  ASSERT_EQ(::unlink(program.c_str()), 0);
  EXPECT_EQ(text_of(copy().program), "program of the first release");
}

TEST_F(Copies, OldOnesGoWhenNobodyRunsThem) {
  LocalCopy first = copy();
  release("of the second release");
  const LocalCopy second = copy();
  EXPECT_NE(second.program, first.program);
  EXPECT_TRUE(is_accessible(first.program)) << "a holder runs from it";
  EXPECT_TRUE(make_directories(base_ + "/killed.new/bin").ok());
  first.in_use.reset();
  EXPECT_EQ(copy().program, second.program);
  EXPECT_EQ(list_directory(base_)->size(), 1U);
}

// A holder's lock has to outlive the exec that it is for.
TEST_F(Copies, LockStaysOpenOverAnExec) {
  const LocalCopy made = copy();
  EXPECT_EQ(::fcntl(made.in_use.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(Copies, FullDiskIsAnError) {
  const auto made = copy_programs(files_, home_.path() + "/missing");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kNotFound);
}

// Of this process; -1 = not known.
long locked_kib() {
  const std::string status = text_of("/proc/self/status");
  const size_t line = status.find("VmLck:");
  return line == std::string::npos ? -1 : std::atol(status.c_str() + line + std::strlen("VmLck:"));
}

constexpr size_t kArenaBytes = size_t{256} << 20;

TEST(LockedMemory, StaysWithTheProcessAndGrowsOnlyByWhatIsTouched) {
  test::Child child([] {
    if (!lock_memory().ok()) return 77;
    if (locked_kib() <= 0) return 1;
    // As an arena of workers, of which the holder maps the header alone.
    const UniqueFd arena(::memfd_create("arena", MFD_CLOEXEC));
    if (::ftruncate(arena.get(), kArenaBytes) != 0) return 2;
    if (::mmap(nullptr, kArenaBytes, PROT_READ, MAP_SHARED, arena.get(), 0) == MAP_FAILED) return 3;
    struct stat st {};
    if (::fstat(arena.get(), &st) != 0 || st.st_blocks != 0) return 4;  // no page was made
    test::Child grandchild([] { return locked_kib() == 0 ? 0 : 1; });
    return grandchild.wait_for_end() == 0 ? 0 : 5;
  });
  const int code = child.wait_for_end();
  if (code == 77) GTEST_SKIP() << "needs root, or RLIMIT_MEMLOCK unlimited";
  EXPECT_EQ(code, 0);
}

// With MCL_FUTURE and a limit, the next large allocation would fail.
TEST(LockedMemory, LimitIsRespectedAndAllocationsGoOn) {
  test::Child child([] {
    const rlimit limit{size_t{16} << 30, size_t{16} << 30};  // more than it has now
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 77;
    if (::geteuid() == 0 && ::setresuid(65'534, 65'534, 65'534) != 0) return 1;
    if (lock_memory().ok()) return 2;
    if (locked_kib() != 0) return 3;
    const void* large = ::mmap(nullptr, size_t{32} << 30, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return large == MAP_FAILED ? 4 : 0;
  });
  const int code = child.wait_for_end();
  if (code == 77) GTEST_SKIP() << "may not raise RLIMIT_MEMLOCK";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace hpctl::holder
