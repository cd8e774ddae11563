// SPDX-License-Identifier: Apache-2.0
// Host memory of tensors that can be used again. LibTorch asks glibc for aligned memory. Before
// 2.38 glibc cannot place an aligned block in a hole that a block of the same size has left: it
// needs room for the alignment in addition. Every tensor that is freed between others that stay (as
// with activation checkpointing per operation) is then lost. Here the room is part of every
// request, so equal requests fit equal holes.
#pragma once

namespace hpctl {

// For all tensors made from now on; once per process counts.
void use_host_memory_again();

}  // namespace hpctl
