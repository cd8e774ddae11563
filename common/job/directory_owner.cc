// SPDX-License-Identifier: Apache-2.0
#include "common/job/directory_owner.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "common/base/bounded_json.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "common/job/lineage.h"

namespace hpctl {
namespace {

constexpr size_t kMaxOwnerBytes = 64U << 10;
// Each means that another process changed the owner meanwhile.
constexpr int kMaxAttempts = 100;

std::string owner_path(const std::string& checkpoint_dir) { return checkpoint_dir + "/owner.json"; }
std::string next_path(const std::string& checkpoint_dir) {
  return checkpoint_dir + "/owner-next.json";
}

nlohmann::json identity_json(const JobIdentity& job) {
  return {{"uuid", job.uuid},       {"job", job.job},        {"name", job.name},
          {"user", job.user},       {"home", job.home},      {"machine", job.machine},
          {"job_dir", job.job_dir}, {"cluster", job.cluster}};
}

JobIdentity identity_of(const nlohmann::json& document) {
  JobIdentity job;
  document.at("uuid").get_to(job.uuid);
  job.job = document.value("job", uint64_t{0});
  job.name = document.value("name", "");
  job.user = document.value("user", "");
  job.home = document.value("home", "");
  job.machine = document.value("machine", "");
  job.job_dir = document.value("job_dir", "");
  job.cluster = document.value("cluster", "");
  return job;
}

Result<DirectoryOwner> parse_owner(const std::string& path, const std::string& text) {
  auto owner = directory_owner_from_json(text);
  if (owner.ok()) return owner;
  return Error{owner.error().code,
               path + " is damaged: " + owner.error().message +
                   "; if no job uses the directory, submit with --take-directory"};
}

// For a directory without owner.json.
Result<std::optional<DirectoryOwner>> owner_by_records(const std::string& checkpoint_dir) {
  HP_TRY_ASSIGN(const auto records, read_lineage(checkpoint_dir));
  if (records.empty()) return std::optional<DirectoryOwner>();
  const GenerationRecord& newest = records.back();
  DirectoryOwner owner;
  owner.owner.uuid = newest.job_uuid;
  owner.owner.job = newest.job;
  owner.owner.name = newest.job_name;
  return std::optional<DirectoryOwner>(std::move(owner));
}

bool is_same_job(const JobIdentity& a, const JobIdentity& b) {
  if (!a.uuid.empty()) return a.uuid == b.uuid;
  return a.job != 0 && a.job == b.job && a.name == b.name;
}

Error refusal(const std::string& checkpoint_dir, const JobIdentity& owner,
              const OwnerAnswer& answer) {
  const std::string what = "checkpoint.dir: " + checkpoint_dir + " belongs to " + describe(owner) +
                           ": " + answer.words + "; ";
  if (answer.life == OwnerLife::kAlive) {
    return Error{ErrorCode::kFailedPrecondition,
                 what +
                     "choose another directory, cancel that job first, or submit with "
                     "--take-directory to take the directory from it"};
  }
  return Error{ErrorCode::kUnavailable,
               what +
                   "if that job has ended, submit with --take-directory, else choose another "
                   "directory"};
}

// The directory as a claim finds it.
struct Found {
  std::string text;                   // of owner.json; "" = there is none
  std::optional<DirectoryOwner> now;  // by the file, else by the records
};

Result<Found> look(const std::string& checkpoint_dir, LivingOwner living) {
  Found found;
  HP_TRY_ASSIGN(const auto text, read_file_if_there(owner_path(checkpoint_dir), kMaxOwnerBytes));
  if (!text) {
    HP_TRY_ASSIGN(found.now, owner_by_records(checkpoint_dir));
    return found;
  }
  found.text = *text;
  auto owner = parse_owner(owner_path(checkpoint_dir), *text);
  if (owner.ok()) {
    found.now = std::move(*owner);
  } else if (living == LivingOwner::kRefuse) {
    return owner.error();
  }
  return found;
}

bool may_replace(OwnerLife life, LivingOwner living) {
  switch (life) {
    case OwnerLife::kEnded:
      return true;
    case OwnerLife::kAlive:
      return living == LivingOwner::kTake;
    case OwnerLife::kCannotBeAsked:
      return living != LivingOwner::kRefuse;
  }
  return false;
}

Outcome refuse_living(const std::string& checkpoint_dir, const JobIdentity& owner,
                      const AskOwner& ask, LivingOwner living) {
  const OwnerAnswer answer = ask(owner);
  if (may_replace(answer.life, living)) return Ok{};
  return refusal(checkpoint_dir, owner, answer);
}

// A job of a release without owner.json trains in a directory that names another, and only its
// records tell.
Outcome refuse_older_user(const std::string& checkpoint_dir, const DirectoryOwner& now,
                          const JobIdentity& self, const AskOwner& ask, LivingOwner living) {
  HP_TRY_ASSIGN(const auto newest, owner_by_records(checkpoint_dir));
  if (!newest || !newest->owner.uuid.empty()) return Ok{};
  const JobIdentity& user = newest->owner;
  const auto is_user = [&](const JobIdentity& job) {
    return job.name == user.name && job.job == user.job;
  };
  if (is_user(now.owner) || is_user(self) || (now.former && is_user(*now.former))) return Ok{};
  return refuse_living(checkpoint_dir, user, ask, living);
}

// Another job has begun to replace the owner, and has not yet. Where that job has ended, its
// attempt is removed, or where `living` says so; else it is left alone. replace() of a job that
// lives finds its attempt gone, and looks again.
Outcome clear_attempt(const std::string& checkpoint_dir, const JobIdentity& self,
                      const AskOwner& ask, LivingOwner living) {
  const std::string path = next_path(checkpoint_dir);
  HP_TRY_ASSIGN(const auto text, read_file_if_there(path, kMaxOwnerBytes));
  if (!text) return Ok{};
  const auto next = parse_owner(path, *text);
  if (!next.ok() && living == LivingOwner::kRefuse) return next.error();
  if (next.ok() && !is_same_job(next->owner, self)) {
    HP_TRY(refuse_living(checkpoint_dir, next->owner, ask, living));
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return errno_error("cannot remove " + path);
  return Ok{};
}

// Replaces the owner.json that has this text. False: it has another by now, or another job is
// about to replace it.
Result<bool> replace(const std::string& checkpoint_dir, const std::string& expected,
                     const std::string& text) {
  const std::string next = next_path(checkpoint_dir);
  if (const auto made = create_file_exclusive(next, text); !made.ok()) {
    if (made.error().code == ErrorCode::kAlreadyExists) return false;
    return made.error();
  }
  // Only who has made `next` may replace the owner; so what is read now stays until the rename.
  const auto now = read_file_if_there(owner_path(checkpoint_dir), kMaxOwnerBytes);
  if (!now.ok() || *now != expected) {
    ::unlink(next.c_str());
    if (!now.ok()) return now.error();
    return false;
  }
  if (::rename(next.c_str(), owner_path(checkpoint_dir).c_str()) != 0) {
    if (errno == ENOENT) return false;  // somebody took us for a job that has ended
    return errno_error("cannot rename " + next);
  }
  HP_TRY(sync_directory(checkpoint_dir));
  return true;
}

// One attempt; nullopt: the owner has changed meanwhile.
Result<std::optional<DirectoryClaim>> try_claim(const std::string& checkpoint_dir,
                                                const JobIdentity& self, const AskOwner& ask,
                                                LivingOwner living) {
  HP_TRY_ASSIGN(const Found found, look(checkpoint_dir, living));
  const bool is_ours = found.now && is_same_job(found.now->owner, self);
  if (is_ours && !found.text.empty()) {
    return std::optional(DirectoryClaim{found.now->former, found.now->taken, false, ""});
  }
  DirectoryOwner wanted{self, {}, false};
  if (is_ours) {  // by a record of an older release
    wanted.former = found.now->former;
  } else if (found.now) {
    wanted.former = found.now->owner;
    const OwnerAnswer answer = ask(found.now->owner);
    wanted.taken = answer.life != OwnerLife::kEnded;
    if (!may_replace(answer.life, living)) {
      return refusal(checkpoint_dir, found.now->owner, answer);
    }
    HP_TRY(refuse_older_user(checkpoint_dir, *found.now, self, ask, living));
  }
  const DirectoryClaim claim{wanted.former, wanted.taken, true, found.text};
  if (found.text.empty()) {
    const auto made = create_file_exclusive(owner_path(checkpoint_dir), to_json_text(wanted));
    if (made.ok()) return std::optional(claim);
    if (made.error().code == ErrorCode::kAlreadyExists) return std::optional<DirectoryClaim>();
    return made.error();
  }
  HP_TRY(clear_attempt(checkpoint_dir, self, ask, living));
  HP_TRY_ASSIGN(const bool done, replace(checkpoint_dir, found.text, to_json_text(wanted)));
  return done ? std::optional(claim) : std::nullopt;
}

}  // namespace

std::string to_json_text(const DirectoryOwner& owner) {
  nlohmann::json document = identity_json(owner.owner);
  document["former"] = owner.former ? identity_json(*owner.former) : nlohmann::json(nullptr);
  document["taken"] = owner.taken;
  // Paths and names need not be UTF-8.
  return json_text(document, {.indent = 1}) + "\n";
}

Result<DirectoryOwner> directory_owner_from_json(const std::string& text) {
  nlohmann::json document;
  try {
    document = parse_json(text);
    DirectoryOwner owner;
    owner.owner = identity_of(document);
    const auto former = document.find("former");
    if (former != document.end() && !former->is_null()) owner.former = identity_of(*former);
    owner.taken = document.value("taken", false);
    return owner;
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, "not an owner: " + problem_in(document, e)};
  }
}

bool is_command(const JobIdentity& owner) {
  return !owner.uuid.empty() && owner.job == 0 && owner.home.empty() && owner.job_dir.empty();
}

std::string describe(const JobIdentity& job) {
  if (is_command(job)) {
    return "the command \"" + job.name + "\"" + (job.user.empty() ? "" : " of " + job.user);
  }
  std::string text = job.cluster.empty() ? "job" : "Slurm job";
  if (job.job != 0) text += " " + std::to_string(job.job);
  text += " \"" + job.name + "\"";
  if (!job.user.empty()) text += " of " + job.user;
  if (!job.cluster.empty()) return text + " (cluster " + job.cluster + ")";
  if (!job.home.empty()) return text + " (HPCTL_HOME " + job.home + ")";
  return text + (job.job_dir.empty() ? " (by its newest generation record)"
                                     : " (directory " + job.job_dir + ")");
}

Result<std::optional<DirectoryOwner>> read_directory_owner(const std::string& checkpoint_dir) {
  HP_TRY_ASSIGN(Found found, look(checkpoint_dir, LivingOwner::kRefuse));
  return std::move(found.now);
}

Result<DirectoryClaim> claim_directory(const std::string& checkpoint_dir, const JobIdentity& self,
                                       const AskOwner& ask, LivingOwner living) {
  HP_TRY(make_directories(checkpoint_dir));
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    HP_TRY_ASSIGN(const auto claim, try_claim(checkpoint_dir, self, ask, living));
    if (claim) return *claim;
  }
  return Error{ErrorCode::kUnavailable,
               "the owner of " + checkpoint_dir + " changes all the time; see which jobs use it"};
}

Outcome check_claim(const std::string& checkpoint_dir, const JobIdentity& self,
                    const AskOwner& ask) {
  HP_TRY_ASSIGN(const Found found, look(checkpoint_dir, LivingOwner::kRefuse));
  if (!found.now || is_same_job(found.now->owner, self)) return Ok{};
  HP_TRY(refuse_living(checkpoint_dir, found.now->owner, ask, LivingOwner::kRefuse));
  return refuse_older_user(checkpoint_dir, *found.now, self, ask, LivingOwner::kRefuse);
}

Outcome undo_claim(const std::string& checkpoint_dir, const JobIdentity& self,
                   const DirectoryClaim& claim) {
  if (!claim.changed) return Ok{};
  HP_TRY(check_ownership(checkpoint_dir, self));
  const std::string path = owner_path(checkpoint_dir);
  if (!claim.before.empty()) return write_file_atomic(path, claim.before);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return errno_error("cannot remove " + path);
  return sync_directory(checkpoint_dir);
}

Outcome check_is_there(const std::string& checkpoint_dir, const std::string& uuid) {
  const std::string path = owner_path(checkpoint_dir);
  HP_TRY_ASSIGN(const auto text, read_file_if_there(path, kMaxOwnerBytes));
  if (!text) {
    return Error{ErrorCode::kStorage,
                 checkpoint_dir +
                     " has no owner.json, though this job has claimed it; mount or restore it, on "
                     "every node of the job",
                 ENOENT};
  }
  if (uuid.empty()) return Ok{};
  const auto owner = parse_owner(path, *text);
  if (!owner.ok()) return Error{ErrorCode::kStorage, owner.error().message};
  if (owner->owner.uuid == uuid) return Ok{};
  return Error{
      ErrorCode::kFailedPrecondition,
      checkpoint_dir + " belongs to " + describe(owner->owner) +
          " by now; if that is another directory than before, mount or link the right one"};
}

Outcome check_ownership(const std::string& checkpoint_dir, const JobIdentity& self) {
  HP_TRY_ASSIGN(const auto owner, read_directory_owner(checkpoint_dir));
  if (owner && is_same_job(owner->owner, self)) return Ok{};
  if (!owner) {  // nobody removes both; a file system that is not mounted looks like that
    return Error{ErrorCode::kStorage,
                 checkpoint_dir +
                     " has neither owner.json nor a generation record, though this "
                     "job has recorded generations there; mount or restore it",
                 ENOENT};
  }
  const std::string whose = checkpoint_dir + " belongs to " + describe(owner->owner);
  HP_TRY_ASSIGN(const auto records, read_lineage(checkpoint_dir));
  const bool is_same_directory = std::any_of(
      records.begin(), records.end(),
      [&](const GenerationRecord& record) { return is_recorded_by(record, self.job, self.uuid); });
  if (is_same_directory) {
    return Error{ErrorCode::kFailedPrecondition, whose + " by now; this job may not go on there"};
  }
  return Error{ErrorCode::kUnavailable,
               whose +
                   ", and has no generation record of this job; mount or link the job's own "
                   "directory"};
}

}  // namespace hpctl
