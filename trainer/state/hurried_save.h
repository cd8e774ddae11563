// SPDX-License-Identifier: Apache-2.0
// A stop arrives while a checkpoint of an older step is being written, and the newest step is in no
// checkpoint. The time that is left may not suffice for both. Then the older save is given up if
// that lets the newest one end in time; otherwise it goes on, since it is the nearest to its end.
//
// Each rank judges its own part of the save by its own clock. The ranks sum their votes, so all of
// them decide the same. Every look votes again, because the speed of storage changes.
#pragma once

namespace hpctl {

// One rank's part of the save under way.
struct PartOfSave {
  double seconds = 0;           // since it began, until its file was durable
  double written = 0;           // the share of its bytes that was written: 0 to 1
  bool is_written = false;      // the file is durable
  bool can_be_given_up = true;  // false: it is made durable, which nothing interrupts
  double usual_seconds = 0;     // of this rank's part in the last checkpoint; 0 = unknown
};

struct SaveVotes {
  double too_slow = 0;     // ranks for which the older and the newest save take too long
  double newest_fits = 0;  // ranks whose part of the newest one would be in time on its own
};

// `left_s`: until SIGKILL.
SaveVotes vote_on_save(const PartOfSave& part, double left_s);

// `sum` over all ranks.
bool is_given_up(const SaveVotes& sum, int world_size);

}  // namespace hpctl
