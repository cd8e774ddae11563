// SPDX-License-Identifier: Apache-2.0
// The list of nodes that `hpctl status` and `hpctl nodes` show.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/job/node_record.h"
#include "controller/publish/status_files.h"
#include "hpctl/terminal.h"

namespace hpctl {

// "12"; "-" of none.
std::string pid_text(uint64_t pid);

// "1 of 1, 96 MiB", "0 of 2, 1 loading"; "" of a node that has none and is to have none.
std::string standbys_text(const NodeView& node);

// The first `most` nodes of each job. STANDBYS, LEMON and NOTE are columns only if a node has some.
Table make_node_table(const std::vector<JobView>& jobs, const std::vector<LemonScore>& lemons,
                      bool with_job, size_t most);

}  // namespace hpctl
