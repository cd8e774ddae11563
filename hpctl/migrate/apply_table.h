// SPDX-License-Identifier: Apache-2.0
// Takes the values of a document by the table of its program, then the defaults of the program that
// differ from ours.
#pragma once

#include <string>
#include <vector>

#include "hpctl/migrate/draft.h"
#include "hpctl/migrate/key_table.h"

namespace hpctl::migrate {

// Returns a line for each key that the table does not have.
std::vector<std::string> apply_table(const Document& document, bool has_trainer, Draft& draft);

}  // namespace hpctl::migrate
