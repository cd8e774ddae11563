// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/hurried_save.h"

#include <algorithm>
#include <limits>

namespace hpctl {

namespace {

// How long this part still takes, by its speed so far. A part of which nothing is written yet, or
// which waits for the disk with all its bytes, tells no speed: then the last one's time counts.
double seconds_to_its_end(const PartOfSave& part) {
  if (part.is_written) return 0;
  const bool has_speed = part.written > 0;
  if (!has_speed && part.usual_seconds == 0) return std::numeric_limits<double>::infinity();
  const double by_speed =
      has_speed ? part.seconds * (1 - part.written) / part.written : part.usual_seconds;
  return std::max(by_speed, part.usual_seconds - part.seconds);
}

}  // namespace

SaveVotes vote_on_save(const PartOfSave& part, double left_s) {
  const double rest = seconds_to_its_end(part);
  const double whole =
      part.is_written ? std::max(part.seconds, part.usual_seconds) : part.seconds + rest;
  const double until_given_up = part.can_be_given_up ? 0 : rest;
  return {.too_slow = rest + whole > left_s ? 1.0 : 0.0,
          .newest_fits = until_given_up + whole <= left_s ? 1.0 : 0.0};
}

bool is_given_up(const SaveVotes& sum, int world_size) {
  return sum.too_slow > 0 && sum.newest_fits == world_size;
}

}  // namespace hpctl
