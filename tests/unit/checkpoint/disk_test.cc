// SPDX-License-Identifier: Apache-2.0
// Full and read-only disks: one line with the remedy, nothing half-written, nothing else touched.
// Real file systems: a small tmpfs mounted in a mount namespace of a child process, which needs
// root; without it the tests are skipped aloud.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "common/base/checksum.h"
#include "common/base/file.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/checkpoint/durable_file.h"
#include "trainer/checkpoint/inspect.h"

namespace hpctl {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Runs `body` in a child that has a tmpfs of `bytes` on `mount_point`, visible to nobody else, and
// returns what body returns. "skip: ..." when mounting is not permitted.
std::string on_small_disk(const std::string& mount_point, size_t bytes,
                          const std::function<std::string()>& body) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    std::string text;
    const std::string options = "size=" + std::to_string(bytes);
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", mount_point.c_str(), "tmpfs", 0, options.c_str()) != 0) {
      text = std::string("skip: mounting a tmpfs needs root: ") + std::strerror(errno);
    } else {
      text = body();
    }
    (void)!write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 4096> chunk{};
  for (ssize_t n = 0; (n = read(ends[0], chunk.data(), chunk.size())) > 0;) {
    text.append(chunk.data(), static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  return text;
}

std::string names_in(const std::string& dir) {
  std::string text;
  for (const std::string& name : list_directory(dir).value()) text += name + " ";
  return text;
}

TEST(Disk, AFullDiskIsReportedAndLeavesNothing) {
  const TemporaryDirectory dir;
  const std::string disk = dir.path();
  // The first save (about 60 KB) fits, the second does not.
  const std::string text = on_small_disk(disk, 100U << 10, [&]() -> std::string {
    if (auto first = save_synthetic({disk, {20, 1}, 2, 1, 0, {}}); !first.ok()) {
      return "first: " + first.error().message;
    }
    const auto second = save_synthetic({disk, {40, 1}, 2, 1, 0, {}});
    if (second.ok()) return "the disk was large enough";
    if (second.error().code != ErrorCode::kResourceExhausted) return "wrong code";
    const auto temporaries = names_in(disk + "/step-40.g1");
    const auto abandoned = abandon_checkpoint(disk, {40, 1});
    const auto intact = digest_checkpoint(disk + "/step-20.g1");
    return second.error().message + "|" + temporaries + "|" + names_in(disk) + "|" +
           (abandoned.ok() && intact.ok() ? "intact" : "harmed");
  });
  if (text.rfind("skip", 0) == 0) GTEST_SKIP() << text;
  EXPECT_THAT(text,
              HasSubstr("No space left on device; free space there, or write to a larger disk"));
  EXPECT_THAT(text, testing::Not(HasSubstr("|shard-00001.safetensors.tmp"))) << text;
  EXPECT_THAT(text, testing::EndsWith("|step-20.g1 |intact"));
}

TEST(Disk, AReadOnlyDiskIsReported) {
  const TemporaryDirectory dir;
  const std::string disk = dir.path();
  const std::string text = on_small_disk(disk, 1U << 20, [&]() -> std::string {
    if (auto first = save_synthetic({disk, {20, 1}, 2, 1, 0, {}}); !first.ok()) return "first";
    GenerationRecord record;
    record.generation = 1;
    if (!create_generation(disk, record).ok()) return "record";
    if (mount(nullptr, disk.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return "ro";
    const auto refused = save_synthetic({disk, {40, 1}, 2, 1, 0, {}});
    const auto kept = keep_newest(disk, 1, 1);
    return (refused.ok() ? "saved" : refused.error().message) + "|" +
           (digest_checkpoint(disk + "/step-20.g1").ok() && kept.ok() ? "intact" : "harmed");
  });
  if (text.rfind("skip", 0) == 0) GTEST_SKIP() << text;
  EXPECT_THAT(text, StartsWith("cannot create directory "));
  EXPECT_THAT(text, HasSubstr("Read-only file system; look at the file system's server"));
  EXPECT_THAT(text, testing::EndsWith("|intact"));
}

TEST(Disk, ADirectoryOfSomeoneElseIsReported) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const TemporaryDirectory dir;
  ASSERT_EQ(chmod(dir.path().c_str(), 0555), 0);
  const auto refused = save_synthetic({dir.path(), {40, 1}, 1, 1, 0, {}});
  ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kPermissionDenied);
}

// Direct writes of whole buffers, then a rest: pieces of every length, on a disk and in memory.
TEST(Disk, LargeFilesPastThePageCacheHoldWhatWasAppended) {
  std::string shared = "/dev/shm/hpctl-disk-test-XXXXXX";
  ASSERT_NE(mkdtemp(shared.data()), nullptr);
  const TemporaryDirectory dir;
  std::string content(21'000'003, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 2654435761U >> 13);
  for (const std::string& path : {dir / "file", shared + "/file"}) {
    auto file = DurableFile::create(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    size_t at = 0;
    for (size_t piece = 1; at < content.size(); piece = piece * 3 + 1) {
      const size_t size = std::min(piece, content.size() - at);
      ASSERT_TRUE(file->append(content.data() + at, size).ok());
      at += size;
    }
    ASSERT_TRUE(file->sync().ok());
    ASSERT_TRUE(file->rename_into_place().ok());
    EXPECT_EQ(file->bytes(), content.size());
    EXPECT_EQ(file->crc32c(), crc32c(content.data(), content.size()));
    EXPECT_TRUE(read_file(path).value() == content) << path;
  }
  EXPECT_TRUE(remove_tree(shared).ok());
}

}  // namespace
}  // namespace hpctl
