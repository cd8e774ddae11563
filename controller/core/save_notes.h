// SPDX-License-Identifier: Apache-2.0
// The history's words for saves that fail for lack of space or of storage (ControllerNoted): `hpctl
// chaos` looks for these words.
#pragma once

namespace hpctl::core {

inline constexpr char kSavesFail[] = "checkpoints cannot be written";
inline constexpr char kSavesWork[] = "checkpoints are written again";

}  // namespace hpctl::core
