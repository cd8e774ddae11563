// SPDX-License-Identifier: Apache-2.0
// The preset that a model's dimensions are, or are nearest to.
#pragma once

#include "hpctl/migrate/draft.h"

namespace hpctl::migrate {

// With few differences the model becomes that preset and the values that differ; otherwise it keeps
// its dimensions. The report names the preset and every difference.
void name_preset(Draft& draft);

}  // namespace hpctl::migrate
