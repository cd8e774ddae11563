// SPDX-License-Identifier: Apache-2.0
#include "controller/engine/mirror.h"

#include <utility>

#include "common/base/file.h"
#include "trainer/checkpoint/commit.h"
#include "trainer/checkpoint/confirm.h"
#include "trainer/checkpoint/mirror.h"

namespace hpctl {
namespace {

// Less than a fast disk does: the copy shares the storage with training.
constexpr uint64_t kBytesPerSecond = 256U << 20;

Generation newest_of(const std::vector<GenerationRecord>& records) {
  return {records.empty() ? 0 : records.back().generation};
}

bool is_undone(const CheckpointRef& ref, const core::UndoneSteps& undone) {
  return undone.generation != Generation{} && ref.generation == undone.generation.value &&
         ref.step > undone.step;
}

// Older copies are deleted in two orders: the first names what a node is to verify, and the second
// deletes. Without a node that can be asked, this reader verifies.
class Mirroring {
 public:
  Mirroring(const core::MirrorCheckpoint& action, const CheckpointSpec& places,
            const std::function<bool()>& goes_on, core::CheckpointMirrored& done)
      : action_(action),
        first_(places.dir),
        mirror_(places.mirror.dir),
        places_(places),
        goes_on_(goes_on),
        done_(done) {}

  Outcome run() {
    HP_TRY(check_apart(first_, mirror_));
    HP_TRY_ASSIGN(const auto records, sync_lineage());
    HP_TRY(remember_first_place(mirror_, first_));
    HP_TRY(set_undone_aside());
    if (!action_.verified.empty()) HP_TRY(delete_older_than_verified());
    HP_TRY_ASSIGN(const auto source,
                  latest_on_chain(first_, chain_of_newest(records), action_.damaged));
    HP_TRY_ASSIGN(auto held, latest_in_mirror(mirror_, records, action_.damaged));
    const bool is_newer = source && (!held || held->step <= source->step);
    if (is_newer) {
      HP_TRY_ASSIGN(const bool is_there, copy(*source, held.has_value()));
      if (is_there) held = source;
    }
    if (held) {
      done_.checkpoint = held->name();
      done_.step = held->step;
    }
    return done_.problem.empty() ? prune({}) : Outcome(Ok{});
  }

 private:
  Result<std::vector<GenerationRecord>> sync_lineage() const {
    HP_TRY_ASSIGN(auto records, read_lineage(first_));
    if (newest_of(records) < action_.generation) {
      HP_TRY(restore_lineage(places_, action_.generation));
    }
    HP_TRY(copy_lineage(first_, mirror_));
    return read_lineage(first_);
  }

  Outcome set_undone_aside() const {
    HP_TRY_ASSIGN(const auto held, list_checkpoints(mirror_));
    for (const CheckpointRef& ref : held) {
      if (!is_undone(ref, action_.undone)) continue;
      HP_TRY_ASSIGN(const bool is_new, is_copied(first_, mirror_, ref.name()));
      if (!is_new) HP_TRY(set_aside(mirror_, ref.name()));
    }
    return Ok{};
  }

  // Whether the mirror has it then. Damage of the source, and a source that went meanwhile, are no
  // failure of storage.
  Result<bool> copy(const CheckpointRef& source, bool holds_another) {
    const auto copied =
        copy_checkpoint(first_, mirror_, source.name(), {kBytesPerSecond, goes_on_});
    if (copied.ok()) {
      done_.copied_bytes = *copied;
      return true;
    }
    const Error& error = copied.error();
    if (error.code == ErrorCode::kResourceExhausted) {
      const bool was_in_vain = !action_.verified.empty() && done_.deleted.empty();
      if (was_in_vain) return error;
      HP_TRY(holds_another ? prune({.for_room = true}) : drop_leftovers(source));
      if (done_.to_verify.empty()) return error;
      done_.for_room = true;
    } else if (error.code != ErrorCode::kDataLoss && error.code != ErrorCode::kNotFound) {
      return error;
    }
    done_.problem = error.message;
    return false;
  }

  Outcome delete_older_than_verified() {
    const std::string& path = action_.verified;
    const std::string name = path.substr(path.rfind('/') + 1);
    if (path == mirror_ + "/" + name)
      return prune({.for_room = action_.for_room, .verified = name});
    const auto ref = parse_checkpoint_name(name);
    if (ref) HP_TRY(remove_leftovers(mirror_, *ref));
    done_.verified = path;
    return Ok{};
  }

  // Of a mirror that is full and has no whole copy: what is newer is in the first place.
  Outcome drop_leftovers(const CheckpointRef& source) {
    HP_TRY_ASSIGN(const auto names, list_leftovers(mirror_, source));
    if (names.empty()) return Ok{};
    const std::string path = first_ + "/" + source.name();
    if (action_.asks) {
      done_.to_verify = path;
      return Ok{};
    }
    HP_TRY(confirm_checkpoint(path, places_.verify_before_delete, goes_on_));
    done_.verified = path;
    return remove_leftovers(mirror_, source);
  }

  struct Pruning {
    bool for_room = false;
    std::string verified = {};  // name of a copy
  };
  Outcome prune(const Pruning& wanted) {
    const RetentionOrder order{.generation = action_.generation.value,
                               .keep = places_.keep,
                               .keep_every = places_.keep_every,
                               .depth = places_.verify_before_delete,
                               .for_room = wanted.for_room,
                               .unfinished = true,
                               .of_mirror = true,
                               .asks = action_.asks && wanted.verified.empty(),
                               .verified = wanted.verified,
                               .goes_on = goes_on_};
    HP_TRY_ASSIGN(const auto pruned, delete_older_checkpoints(mirror_, order));
    done_.deleted.insert(done_.deleted.end(), pruned.deleted.begin(), pruned.deleted.end());
    if (!pruned.verified.empty()) done_.verified = mirror_ + "/" + pruned.verified;
    if (!pruned.to_verify.empty()) done_.to_verify = mirror_ + "/" + pruned.to_verify;
    if (!pruned.problem.empty()) done_.problem = pruned.problem;
    // It would be asked for again and again.
    if (!wanted.verified.empty() && !pruned.refused.empty()) done_.problem = pruned.refused;
    return Ok{};
  }

  const core::MirrorCheckpoint& action_;
  const std::string& first_;
  const std::string& mirror_;
  const CheckpointSpec& places_;
  const std::function<bool()>& goes_on_;
  core::CheckpointMirrored& done_;
};

// "" = there is no claim, or it is not true. The checkpoint is in the mirror.
Result<std::string> confirm(const core::DamageClaim& claim) {
  if (claim.checkpoint.empty()) return std::string();
  HP_TRY_ASSIGN(std::string damage, confirm_damage(claim.checkpoint, claim.what, claim.part));
  if (!damage.empty()) HP_TRY(check_path_in_place(claim.checkpoint));
  return damage;
}

Result<core::CheckpointChosen> search(ActionId id, const core::FindCheckpoint& action,
                                      const CheckpointSpec& places) {
  const std::string& mirror = places.mirror.dir;
  HP_TRY_ASSIGN(auto records, read_lineage(action.first.away ? mirror : places.dir));
  const auto withdrawn = core::drop_withdrawn(records, action);
  std::vector<std::string> exclude = action.exclude;
  if (action.undone.generation != Generation{}) {
    HP_TRY_ASSIGN(const auto held, list_checkpoints(mirror));
    for (const CheckpointRef& ref : held) {
      if (is_undone(ref, action.undone)) exclude.push_back(mirror + "/" + ref.name());
    }
  }
  core::CheckpointChosen chosen{id, action.job, "", 0, newest_of(records)};
  chosen.withdrawn = withdrawn;
  HP_TRY_ASSIGN(chosen.confirmed, confirm(action.claim));
  if (!chosen.confirmed.empty()) exclude.push_back(action.claim.checkpoint);
  HP_TRY_ASSIGN(const auto newest, latest_in_mirror(mirror, records, exclude));
  if (newest) {
    chosen.checkpoint = mirror + "/" + newest->name();
    chosen.step = newest->step;
  }
  return chosen;
}

}  // namespace

std::optional<core::EventBody> mirror_checkpoint(ActionId id, const core::MirrorCheckpoint& action,
                                                 const JobSpec& spec,
                                                 const std::function<bool()>& goes_on) {
  core::CheckpointMirrored done{id, action.job};
  const Outcome made = Mirroring(action, spec.checkpoint, goes_on, done).run();
  if (!goes_on()) return std::nullopt;
  if (!made.ok()) return core::ActionFailed{id, action.job, "", made.error().message};
  return done;
}

core::EventBody find_in_mirror(ActionId id, const core::FindCheckpoint& action,
                               const JobSpec& spec) {
  auto chosen = search(id, action, spec.checkpoint);
  if (chosen.ok()) return *std::move(chosen);
  return core::ActionFailed{id, action.job, "", chosen.error().message};
}

Outcome restore_lineage(const CheckpointSpec& checkpoint, Generation newest) {
  const std::string& mirror = checkpoint.mirror.dir;
  HP_TRY_ASSIGN(const auto records, read_lineage(mirror));
  if (newest_of(records) < newest) {
    return Error{ErrorCode::kStorage, "neither " + checkpoint.dir + " nor " + mirror +
                                          " has the record of generation " + to_string(newest)};
  }
  HP_TRY_ASSIGN(const bool is_first, is_first_place(mirror, checkpoint.dir));
  if (!is_first) {
    return Error{ErrorCode::kStorage, checkpoint.dir +
                                          " is not the directory that was mirrored; mount it, or "
                                          "continue in a copy of " +
                                          mirror};
  }
  return copy_lineage(mirror, checkpoint.dir);
}

}  // namespace hpctl
