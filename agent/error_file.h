// SPDX-License-Identifier: Apache-2.0
// TORCHELASTIC_ERROR_FILE: where a PyTorch program that uses torch.distributed.elastic's `record`
// writes the exception it dies of. One JSON document: {"message": "..."} or {"message": {"message":
// "TYPE: text", "extraInfo": {...}}}. The program is not trusted: what is read is bounded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "agent/node_place.h"
#include "common/base/result.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl::agent {

std::string error_file_path(const NodePlace& place, uint64_t generation, int32_t rank);

// Makes the directory of the error files and removes those that this rank's earlier lives left.
Outcome prepare_error_file(const NodePlace& place, uint64_t generation, int32_t rank);

// The cause of death in one line; "" when the program wrote none that can be understood.
std::string read_error_file(const std::string& path);

// Returns whether the words of a dying program say that another rank went away first: then they
// describe a consequence.
bool tells_lost_peer(std::string_view cause);

// Puts into `exited` what the program itself recorded of its end, which says more than its last
// line, and whether that tells a consequence.
void explain_exit(v1::WorkerExited& exited, const NodePlace& place);

}  // namespace hpctl::agent
