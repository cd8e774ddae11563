// SPDX-License-Identifier: Apache-2.0
// Host memory of tensors that can be used again. LibTorch asks glibc for aligned memory, and before
// 2.38 glibc finds no place for an aligned block in a hole that a block of just this size has left:
// it wants room for the alignment on top. Every tensor that is freed between others that stay (as
// with activation checkpointing per operation) is then lost. Here the room is part of every
// request, so that equal requests fit equal holes.
#pragma once

namespace hpctl {

// For all tensors made from now on; once per process counts.
void use_host_memory_again();

}  // namespace hpctl
