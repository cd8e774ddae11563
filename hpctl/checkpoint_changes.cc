// SPDX-License-Identifier: Apache-2.0
#include "hpctl/checkpoint_changes.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>

#include "common/base/clock.h"
#include "common/base/random_hex.h"
#include "common/job/directory_owner.h"
#include "common/job/paths.h"
#include "common/process/user_name.h"
#include "controller/leadership/ask_owner.h"
#include "hpctl/checkpoint_list.h"
#include "hpctl/exit_codes.h"
#include "trainer/checkpoint/commit.h"

namespace hpctl {
namespace {

Error refusal(const std::string& message) { return {ErrorCode::kFailedPrecondition, message}; }

// An owner that has not ended, as far as is known.
struct LivingJob {
  JobIdentity identity;
  std::string words;   // "DIR belongs to job ...: it is RUNNING"
  std::string remedy;  // "cancel that job first"
};

Result<AskOwner> asker(const std::string& directory) {
  HP_TRY_ASSIGN(const HomePaths home, home_from_environment());
  return AskOwner(
      [directory, home](const JobIdentity& owner) { return ask_owner(owner, directory, home); });
}

Result<std::optional<LivingJob>> find_living_owner(const std::string& directory) {
  HP_TRY_ASSIGN(const auto owner, read_directory_owner(directory));
  if (!owner) return std::optional<LivingJob>();
  HP_TRY_ASSIGN(const AskOwner ask, asker(directory));
  const OwnerAnswer answer = ask(owner->owner);
  if (answer.life == OwnerLife::kEnded) return std::optional<LivingJob>();
  return std::optional(LivingJob{
      owner->owner, directory + " belongs to " + describe(owner->owner) + ": " + answer.words,
      answer.life == OwnerLife::kAlive
          ? "cancel that job first"
          : "ask where that job is known, or, if it has ended, add --take-directory"});
}

// Makes `command` the owner of a directory whose owner cannot be asked. If that job lives after
// all, it ends when it prepares its next generation. An owner that lives is refused.
Outcome take_directory(const std::string& directory, const std::string& command) {
  const auto living = find_living_owner(directory);
  if (living.ok() && !*living) return Ok{};
  // Whose directory it is, a damaged owner.json cannot tell.
  if (!living.ok() && living.error().code != ErrorCode::kDataLoss) return living.error();
  HP_TRY_ASSIGN(const AskOwner ask, asker(directory));
  JobIdentity self;
  HP_TRY_ASSIGN(self.uuid, random_key());
  self.name = command;
  self.user = user_name(std::to_string(::geteuid()));
  HP_TRY(claim_directory(directory, self, ask, LivingOwner::kTakeUnreachable));
  return Ok{};
}

// What a job may still read: the chains of all generations that it recorded, and the checkpoints
// that those started from.
struct Needed {
  std::set<uint64_t> generations;
  std::set<std::string> checkpoints;  // names
};

Needed find_needed(const std::vector<GenerationRecord>& records, const JobIdentity& job) {
  Needed needed;
  for (const GenerationRecord& own : records) {
    if (!is_recorded_by(own, job.job, job.uuid)) continue;
    const std::string& start = own.checkpoint;  // a name, or the path that the job file gave
    needed.checkpoints.insert(start.substr(start.rfind('/') + 1));
    for (const GenerationRecord& record : chain_of(records, own.generation)) {
      needed.generations.insert(record.generation);
    }
  }
  return needed;
}

// Refuses what the owner of the directory may still need.
Outcome check_not_needed(const std::string& directory, const std::vector<CheckpointRef>& chosen) {
  HP_TRY_ASSIGN(const auto living, find_living_owner(directory));
  if (!living) return Ok{};
  HP_TRY_ASSIGN(const auto records, read_lineage(directory));
  const Needed needed = find_needed(records, living->identity);
  if (needed.generations.empty()) {
    return refusal(living->words +
                   ", and it has recorded no generation yet, so what it starts from is not known; "
                   "wait until it trains, or " +
                   living->remedy);
  }
  for (const CheckpointRef& ref : chosen) {
    if (!needed.generations.contains(ref.generation) && !needed.checkpoints.contains(ref.name())) {
      continue;
    }
    return refusal("cannot remove " + ref.name() + ": " + living->words +
                   ", and that job may need it; checkpoint.keep says how many it keeps; " +
                   living->remedy);
  }
  return Ok{};
}

Result<std::vector<CheckpointListing>> choose_chain(const std::string& directory, uint64_t number) {
  HP_TRY_ASSIGN(const auto records, read_lineage(directory));
  const auto chains = find_chains(records);
  HP_TRY(find_chain(chains, number));
  HP_TRY_ASSIGN(auto chosen, list_checkpoint_states(directory, chains));
  std::erase_if(chosen, [&](const CheckpointListing& c) { return c.chain != number; });
  if (!chosen.empty()) return chosen;
  return Error{ErrorCode::kNotFound,
               "chain " + std::to_string(number) + " has no checkpoints in " + directory};
}

Result<std::vector<CheckpointListing>> choose_names(const std::string& directory,
                                                    const std::vector<std::string>& names) {
  HP_TRY_ASSIGN(const auto listings, list_checkpoint_states(directory));
  std::vector<CheckpointListing> chosen;
  for (const std::string& name : names) {
    const auto ref = parse_checkpoint_name(name);
    if (!ref) {
      return Error{ErrorCode::kInvalidArgument,
                   "rm: \"" + name + "\" is no checkpoint's name; expected one such as step-40.g1"};
    }
    const auto is_it = [&](const CheckpointListing& c) { return c.ref == *ref; };
    const auto found = std::find_if(listings.begin(), listings.end(), is_it);
    if (found == listings.end()) {
      return Error{ErrorCode::kNotFound, "there is no " + name + " in " + directory};
    }
    if (std::none_of(chosen.begin(), chosen.end(), is_it)) chosen.push_back(*found);
  }
  return chosen;
}

uint64_t bytes_of(const std::vector<CheckpointListing>& checkpoints) {
  uint64_t bytes = 0;
  for (const CheckpointListing& c : checkpoints) bytes += c.bytes;
  return bytes;
}

std::string total_text(const std::vector<CheckpointListing>& checkpoints) {
  return counted(static_cast<int64_t>(checkpoints.size()), "checkpoint") + ", " +
         short_number(static_cast<double>(bytes_of(checkpoints))) + " bytes";
}

void print_chosen(const Terminal& terminal, const std::vector<CheckpointListing>& chosen) {
  Table table({"CHECKPOINT", "STATE", "CHAIN", "BYTES", "CREATED"});
  for (const CheckpointListing& c : chosen) {
    table.add({c.ref.name(), to_string(c.state), c.chain == 0 ? "-" : std::to_string(c.chain),
               short_number(static_cast<double>(c.bytes)), created_text(c.created_wall_ms)});
  }
  table.print(terminal);
}

// The owner is asked again before each: a job may have claimed the directory meanwhile.
Outcome remove_all(const std::string& directory, const std::vector<CheckpointListing>& chosen) {
  for (const CheckpointListing& c : chosen) {
    HP_TRY(check_not_needed(directory, {c.ref}));
    HP_TRY(delete_checkpoint(directory, c.ref.name()));
  }
  return Ok{};
}

int print_removed_json(const Terminal& terminal, const std::vector<CheckpointListing>& removed,
                       const std::vector<CheckpointListing>& left) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CheckpointListing& c : removed) {
    list.push_back({{"name", c.ref.name()}, {"bytes", c.bytes}});
  }
  const CheckpointListing* const resumed = find_resumed(left);
  return print_json(terminal, {{"removed", list},
                               {"bytes", bytes_of(removed)},
                               {"resume", resumed == nullptr ? "" : resumed->ref.name()}});
}

// How many of the chosen ones are gone, where one could not be removed.
int report_stopped(const Terminal& terminal, const std::string& directory, const Error& error) {
  report(terminal, error);
  terminal.err << "hpctl: stopped there; see what is left with: hpctl checkpoint ls "
               << printable(directory) << "\n";
  return exit_code_of(error);
}

}  // namespace

int run_remove(const Invocation& invocation, const std::string& directory,
               const std::vector<std::string>& names) {
  const Terminal& terminal = invocation.terminal;
  const auto number = number_option(invocation, "--chain", 1, INT64_MAX);
  if (!number.ok()) return report_usage(terminal, "checkpoint", number.error().message);
  if (number->has_value() != names.empty()) {
    return report_usage(terminal, "checkpoint", "rm takes --chain N or the names of checkpoints");
  }
  const auto chosen = *number ? choose_chain(directory, static_cast<uint64_t>(**number))
                              : choose_names(directory, names);
  if (!chosen.ok()) {
    report(terminal, chosen.error());
    return exit_code_of_input(chosen.error());
  }
  std::vector<CheckpointRef> refs;
  for (const CheckpointListing& c : *chosen) refs.push_back(c.ref);
  const bool takes = invocation.has("--take-directory") && invocation.has("--yes");
  if (const auto taken = takes ? take_directory(directory, "hpctl checkpoint rm") : Outcome(Ok{});
      !taken.ok()) {
    return report(terminal, taken.error());
  }
  if (const auto free = check_not_needed(directory, refs); !free.ok()) {
    return report(terminal, free.error());
  }
  if (!invocation.has("--yes")) {
    if (!invocation.json()) print_chosen(terminal, *chosen);
    return report(terminal, refusal("nothing is removed; add --yes to remove " +
                                    total_text(*chosen) + ", from " + directory));
  }
  if (const auto removed = remove_all(directory, *chosen); !removed.ok()) {
    return report_stopped(terminal, directory, removed.error());
  }
  const auto left = list_checkpoint_states(directory);
  if (!left.ok()) return report(terminal, left.error());
  if (invocation.json()) return print_removed_json(terminal, *chosen, *left);
  print_chosen(terminal, *chosen);
  terminal.out << "removed " << total_text(*chosen) << ", from " << printable(directory) << "; "
               << describe_resume(*left) << "\n";
  return kExitOk;
}

namespace {

// An owner may continue the newest chain at any moment.
Outcome check_ended(const std::string& directory) {
  HP_TRY_ASSIGN(const auto living, find_living_owner(directory));
  if (!living) return Ok{};
  return refusal("cannot adopt: " + living->words + "; " + living->remedy);
}

Result<GenerationRecord> adopt(const std::string& directory, uint64_t number) {
  HP_TRY(check_ended(directory));
  const std::string user = user_name(std::to_string(::geteuid()));
  return adopt_chain(directory, number,
                     "hpctl checkpoint adopt --chain " + std::to_string(number) +
                         (user.empty() ? "" : ", by " + user),
                     SystemClock().wall_ms());
}

}  // namespace

int run_adopt(const Invocation& invocation, const std::string& directory) {
  const Terminal& terminal = invocation.terminal;
  const auto number = number_option(invocation, "--chain", 1, INT64_MAX);
  if (!number.ok()) return report_usage(terminal, "checkpoint", number.error().message);
  if (!*number) return report_usage(terminal, "checkpoint", "adopt takes --chain N");
  if (const auto taken = invocation.has("--take-directory")
                             ? take_directory(directory, "hpctl checkpoint adopt")
                             : Outcome(Ok{});
      !taken.ok()) {
    return report(terminal, taken.error());
  }
  const auto record = adopt(directory, static_cast<uint64_t>(**number));
  if (!record.ok()) return report(terminal, record.error());
  if (invocation.json()) {
    return print_json(
        terminal,
        {{"chain", record->generation}, {"adopted", **number}, {"resume", record->checkpoint}});
  }
  terminal.out << "chain " << **number << " of " << printable(job_of(*record)) << " is chain "
               << record->generation << " now; resume: latest starts from " << record->checkpoint
               << "\n";
  return kExitOk;
}

}  // namespace hpctl
