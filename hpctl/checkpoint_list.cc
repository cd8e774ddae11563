// SPDX-License-Identifier: Apache-2.0
#include "hpctl/checkpoint_list.h"

#include <optional>

#include "common/base/clock.h"
#include "common/base/json_text.h"
#include "common/job/directory_owner.h"
#include "common/job/duration_text.h"
#include "hpctl/event_text.h"
#include "hpctl/exit_codes.h"

namespace hpctl {
namespace {

// A chain with the checkpoints that it has.
struct ChainRow {
  const CheckpointChain* chain = nullptr;
  int64_t checkpoints = 0;
  uint64_t bytes = 0;
  std::string newest;      // what adopt would resume from; "" = none is valid
  bool is_owners = false;  // the owner of the directory recorded its newest generation
  bool is_newest = false;  // resume: latest continues it
};

struct Listing {
  std::vector<CheckpointChain> chains;
  std::vector<CheckpointListing> checkpoints;
  std::vector<ChainRow> rows;  // newest first
  std::optional<DirectoryOwner> owner;
};

bool is_owners(const CheckpointChain& chain, const std::optional<DirectoryOwner>& owner) {
  return owner && is_recorded_by(chain.newest(), owner->owner.job, owner->owner.uuid);
}

// A chain without checkpoints is not told, but for the newest: a job continues that one.
std::vector<ChainRow> rows_of(const Listing& listing) {
  std::vector<ChainRow> rows;
  for (const CheckpointChain& chain : listing.chains) {
    ChainRow row;
    row.chain = &chain;
    row.is_owners = is_owners(chain, listing.owner);
    row.is_newest = &chain == &listing.chains.front();
    for (const CheckpointListing& c : listing.checkpoints) {
      if (c.chain != chain.number()) continue;
      ++row.checkpoints;
      row.bytes += c.bytes;
      if (c.state == CheckpointState::kValid || c.state == CheckpointState::kForeign) {
        row.newest = c.ref.name();
      }
    }
    if (row.checkpoints > 0 || row.is_newest) rows.push_back(row);
  }
  return rows;
}

Result<Listing> read(const Terminal& terminal, const std::string& directory) {
  Listing listing;
  HP_TRY_ASSIGN(const auto records, read_lineage(directory));
  listing.chains = find_chains(records);
  HP_TRY_ASSIGN(listing.checkpoints, list_checkpoint_states(directory, listing.chains));
  // The checkpoints are told whatever the owner's file says.
  auto owner = read_directory_owner(directory);
  if (!owner.ok()) report(terminal, owner.error());
  if (owner.ok()) listing.owner = std::move(*owner);
  listing.rows = rows_of(listing);
  return listing;
}

nlohmann::ordered_json json_of(const CheckpointListing& c) {
  return {{"name", c.ref.name()},
          {"step", c.ref.step},
          {"generation", c.ref.generation},
          {"state", to_string(c.state)},
          {"world_size", c.world_size},
          {"bytes", c.bytes},
          {"created", created_text(c.created_wall_ms)},
          {"detail", c.detail},
          {"chain", c.chain}};
}

nlohmann::ordered_json json_of(const ChainRow& row) {
  return {{"chain", row.chain->number()},
          {"job", row.chain->newest().job},
          {"job_name", row.chain->newest().job_name},
          {"generations", row.chain->generations.size()},
          {"checkpoints", row.checkpoints},
          {"bytes", row.bytes},
          {"newest", row.newest},
          {"owners", row.is_owners},
          {"latest", row.is_newest}};
}

nlohmann::ordered_json json_of(const std::optional<DirectoryOwner>& owner) {
  if (!owner) return nullptr;
  const JobIdentity& job = owner->owner;
  return {{"uuid", job.uuid}, {"job", job.job}, {"name", job.name}, {"user", job.user}};
}

nlohmann::ordered_json mirror_json(const JobView* mirrored) {
  if (mirrored == nullptr) return nullptr;
  const MirrorView& mirror = mirrored->mirror;
  return {{"dir", mirror.dir},
          {"step", mirror.step},
          {"behind_ms", mirror.behind_ms},
          {"problem", mirror.problem}};
}

int print_listing_json(const Terminal& terminal, const Listing& listing, const JobView* mirrored) {
  nlohmann::ordered_json checkpoints = nlohmann::ordered_json::array();
  nlohmann::ordered_json chains = nlohmann::ordered_json::array();
  for (const CheckpointListing& c : listing.checkpoints) checkpoints.push_back(json_of(c));
  for (const ChainRow& row : listing.rows) chains.push_back(json_of(row));
  const CheckpointListing* const resumed = find_resumed(listing.checkpoints);
  return print_json(terminal, {{"checkpoints", checkpoints},
                               {"chains", chains},
                               {"owner", json_of(listing.owner)},
                               {"mirror", mirror_json(mirrored)},
                               {"resume", resumed == nullptr ? "" : resumed->ref.name()}});
}

Colour colour_of(CheckpointState state) {
  if (state == CheckpointState::kValid) return Colour::kGreen;
  return state == CheckpointState::kDamaged ? Colour::kRed : Colour::kDim;
}

std::string bytes_text(uint64_t bytes) { return short_number(static_cast<double>(bytes)); }

void print_checkpoints(const Terminal& terminal, const Listing& listing) {
  Table table({"CHECKPOINT", "STATE", "CHAIN", "WORKERS", "BYTES", "CREATED", "DETAIL"});
  for (const CheckpointListing& c : listing.checkpoints) {
    table.add({c.ref.name(), to_string(c.state), c.chain == 0 ? "-" : std::to_string(c.chain),
               c.world_size == 0 ? "-" : std::to_string(c.world_size), bytes_text(c.bytes),
               created_text(c.created_wall_ms), c.detail},
              colour_of(c.state));
  }
  table.print(terminal);
}

std::string note_of(const ChainRow& row) {
  std::string note = row.is_owners ? "the owner's" : "";
  if (row.is_newest) note += note.empty() ? "resumed from" : ", resumed from";
  return note;
}

void print_chains(const Terminal& terminal, const Listing& listing) {
  Table table({"CHAIN", "JOB", "CHECKPOINTS", "BYTES", "NEWEST", "NOTE"});
  for (const ChainRow& row : listing.rows) {
    table.add({std::to_string(row.chain->number()), printable(job_of(row.chain->newest())),
               std::to_string(row.checkpoints), bytes_text(row.bytes),
               row.newest.empty() ? "-" : row.newest, note_of(row)});
  }
  terminal.out << "\n";
  table.print(terminal);
}

}  // namespace

int run_list(const Invocation& invocation, const std::string& directory, const JobView* job) {
  const bool has_mirror = job != nullptr && !job->mirror.dir.empty();
  const Terminal& terminal = invocation.terminal;
  const auto listing = read(terminal, directory);
  if (!listing.ok()) return report(terminal, listing.error());
  if (invocation.json()) return print_listing_json(terminal, *listing, has_mirror ? job : nullptr);
  if (listing->checkpoints.empty()) {
    terminal.err << "no checkpoints in " << printable(directory) << "\n";
    return kExitOk;
  }
  print_checkpoints(terminal, *listing);
  if (listing->rows.size() > 1) print_chains(terminal, *listing);
  terminal.out << "\n";
  if (listing->owner) {
    terminal.out << "owner: " << printable(describe(listing->owner->owner)) << "\n";
  }
  if (has_mirror) terminal.out << "mirror: " << printable(mirror_text(*job)) << "\n";
  terminal.out << describe_resume(listing->checkpoints) << "\n";
  return kExitOk;
}

std::string mirror_text(const JobView& job) {
  const MirrorView& mirror = job.mirror;
  std::string text = (mirror.step == 0 ? "none yet" : "step " + std::to_string(mirror.step)) +
                     " in " + with_job_paths(mirror.dir, job.job);
  if (mirror.step < job.checkpoint_step) {
    text +=
        ", " + counted(static_cast<int64_t>(job.checkpoint_step - mirror.step), "step") + " behind";
  }
  if (mirror.behind_ms > 0) {
    text += "; a copy has been due for " + format_duration(mirror.behind_ms);
  }
  return mirror.problem.empty() ? text : text + ": " + mirror.problem;
}

std::string describe_resume(const std::vector<CheckpointListing>& listings) {
  const CheckpointListing* const resumed = find_resumed(listings);
  if (resumed == nullptr) return "no checkpoint here can be resumed from";
  return "resume: latest starts from " + resumed->ref.name();
}

std::string created_text(int64_t wall_ms) {
  return wall_ms == 0 ? "" : format_wall_ms(wall_ms).substr(0, 19) + "Z";
}

int print_json(const Terminal& terminal, const nlohmann::ordered_json& document) {
  terminal.out << json_text(document) << "\n";
  return kExitOk;
}

}  // namespace hpctl
