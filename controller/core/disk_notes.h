// SPDX-License-Identifier: Apache-2.0
// How the history tells of the disk of the checkpoints (ControllerNoted): `hpctl chaos` looks for
// these words.
#pragma once

namespace hpctl::core {

inline constexpr char kDiskIsFull[] = "the disk of the checkpoints is full";
inline constexpr char kDiskHasRoom[] = "the disk of the checkpoints has room again";

}  // namespace hpctl::core
