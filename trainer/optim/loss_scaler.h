// SPDX-License-Identifier: Apache-2.0
// The dynamic loss scale of fp16 (Micikevicius et al. 2018), with the rules of Megatron-LM and
// DeepSpeed: the objective is multiplied by a power of two before the backward pass, and the
// gradients are divided by it before they are clipped. A gradient that is not finite although the
// loss is, has overflowed:
//
//   overflow                       hysteresis_left > 1 ? one less : halve, not below `min`
//   `growth_interval` steps in a   double, at most to kMaxLossScale; hysteresis_left as at first
//   row without one
//
// The decision depends only on all-reduced numbers and a durable record, like stability.h, so all
// ranks agree and a repeated run decides as before. docs/decisions/1105-loss-scale.md.
#pragma once

#include "common/job/train_spec.h"
#include "trainer/optim/records.h"

namespace hpctl {

// The scale of the first step; 0 unless the precision is fp16.
LossScaleRecord first_loss_scale(const TrainSpec& train);

// Has a step of a scaled loss overflowed?
bool is_overflow(const LossScaleRecord& record, double loss, double grad_norm);

// After an overflow; the step is not applied. False when the scale cannot become smaller: then it
// was no matter of the scale.
bool lower_loss_scale(const LossScaleSpec& spec, LossScaleRecord& record);

// After a step that is applied.
void remember_good_step(const LossScaleSpec& spec, LossScaleRecord& record);

}  // namespace hpctl
