// SPDX-License-Identifier: Apache-2.0
// How the history tells of saves that fail, for want of room or of storage (ControllerNoted):
// `hpctl chaos` looks for these words.
#pragma once

namespace hpctl::core {

inline constexpr char kSavesFail[] = "checkpoints cannot be written";
inline constexpr char kSavesWork[] = "checkpoints are written again";

}  // namespace hpctl::core
