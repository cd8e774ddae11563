// SPDX-License-Identifier: Apache-2.0
#include "hpctl/checkpoint_room.h"

#include <fcntl.h>
#include <linux/quota.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/job/lineage.h"
#include "hpctl/directory_answer.h"
#include "trainer/arch/lora.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/plan/plan_text.h"

namespace hpctl {
namespace {

// The directory, or the nearest one above it that exists. "" where that is only "/": a file system
// that this machine does not have is mounted there on the nodes.
std::string nearest_directory(std::string path) {
  while (path.size() > 1) {
    const auto exists = path_exists(path);
    if (!exists.ok()) return "";
    if (*exists) return path;
    const size_t slash = path.rfind('/');
    path = slash == std::string::npos ? "" : path.substr(0, slash);
  }
  return "";
}

std::optional<double> free_bytes(int fd) {
  struct statvfs state {};
  if (::fstatvfs(fd, &state) != 0) return std::nullopt;
  return static_cast<double>(state.f_bavail) * static_cast<double>(state.f_frsize);
}

// nullopt: the kernel, or this file system, has no quota that it tells in this way.
std::optional<double> ask_quota(int fd, int type, unsigned id) {
#ifdef SYS_quotactl_fd
  struct if_dqblk quota {};
  const auto command = static_cast<unsigned>(QCMD(Q_GETQUOTA, type));
  if (::syscall(SYS_quotactl_fd, fd, command, id, &quota) != 0) return std::nullopt;
  if ((quota.dqb_valid & QIF_BLIMITS) == 0) return std::nullopt;
  return left_of_quota(quota.dqb_bhardlimit, quota.dqb_bsoftlimit, quota.dqb_curspace);
#else
  static_cast<void>(fd), static_cast<void>(type), static_cast<void>(id);
  return std::nullopt;
#endif
}

std::optional<double> smaller(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// New files get the group of a directory that has the set-group-ID bit.
std::optional<double> quota_left(int fd) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return std::nullopt;
  const gid_t group = (st.st_mode & S_ISGID) != 0 ? st.st_gid : ::getegid();
  return smaller(ask_quota(fd, USRQUOTA, ::geteuid()), ask_quota(fd, GRPQUOTA, group));
}

// Checkpoints that retention will count and delete.
int64_t stored_checkpoints(const CheckpointSpec& checkpoint) {
  if (checkpoint.dir.empty() || checkpoint.resume != "latest") return 0;
  const auto records = read_lineage(checkpoint.dir);
  const auto found = list_checkpoints(checkpoint.dir);
  if (!records.ok() || !found.ok()) return 0;
  const auto chain = chain_of_newest(*records);
  return std::count_if(found->begin(), found->end(),
                       [&](const CheckpointRef& ref) { return valid_by_lineage(ref, chain); });
}

}  // namespace

CheckpointRoom find_checkpoint_room(const JobSpec& spec, const HomePaths* home) {
  const CheckpointSpec& checkpoint = spec.checkpoint;
  CheckpointRoom room;
  room.directory = checkpoint.dir;
  if (room.directory.empty() && home != nullptr) room.directory = home->jobs();
  room.each = checkpoint_bytes(trained_layout(*spec.train));
  room.most = checkpoint.keep + 1;
  if (checkpoint.keep_every > 0) room.most += spec.train->steps / checkpoint.keep_every;
  if (!directory_answers(room.directory)) return room;
  room.stored = std::min(stored_checkpoints(checkpoint), room.most - 1);
  const std::string there = nearest_directory(room.directory);
  if (there.empty()) return room;
  const UniqueFd fd(::open(there.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return room;
  room.free = free_bytes(fd.get());
  room.quota = quota_left(fd.get());
  return room;
}

std::vector<CheckpointRoom> find_checkpoint_rooms(const JobSpec& spec, const HomePaths* home) {
  std::vector<CheckpointRoom> rooms = {find_checkpoint_room(spec, home)};
  if (spec.checkpoint.mirror.dir.empty()) return rooms;
  JobSpec mirrored = spec;
  mirrored.checkpoint.dir = spec.checkpoint.mirror.dir;
  rooms.push_back(find_checkpoint_room(mirrored, home));
  rooms.back().key = "checkpoint.mirror.dir";
  return rooms;
}

std::string describe_missing_room(const CheckpointRoom& room, const CheckpointSpec& checkpoint) {
  if (room.fits()) return "";
  const bool is_quota = room.quota && *room.quota < room.free.value_or(*room.quota + 1);
  const int64_t more = room.most - room.stored;
  return room.directory +
         (is_quota ? ": the quota leaves " + size_text(*room.quota)
                   : " has " + size_text(*room.free) + " free") +
         ", and " + std::to_string(more) + (room.stored > 0 ? " more" : "") + " checkpoints of " +
         size_text(room.each) + " need " + size_text(room.needed()) + " (checkpoint.keep " +
         std::to_string(checkpoint.keep) + ", and one being written" +
         (checkpoint.keep_every > 0 ? ", and the checkpoints of checkpoint.keep_every" : "") +
         "); free some space, keep fewer, or choose another " + room.key;
}

std::string size_text(double bytes) {
  return gibibytes(bytes) >= 1 ? plan_text("%.2f GiB", gibibytes(bytes))
                               : plan_text("%.1f MiB", bytes / (1 << 20));
}

std::optional<double> left_of_quota(uint64_t hard, uint64_t soft, uint64_t used_bytes) {
  constexpr double kUnit = 1024;  // QIF_DQBLKSIZE
  if (hard == 0 && soft == 0) return std::nullopt;
  const uint64_t limit = hard == 0 || (soft != 0 && soft < hard) ? soft : hard;
  return std::max(0.0, kUnit * static_cast<double>(limit) - static_cast<double>(used_bytes));
}

}  // namespace hpctl
