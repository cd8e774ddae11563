// SPDX-License-Identifier: Apache-2.0
// JSON field tables of the job document, shared by its readers (job_spec.cc, workload.cc). Include
// from .cc files only: the JSON library is heavy.
#pragma once

#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/job/job_spec.h"

namespace hpctl {

// Words travel and are stored as words.
template <WordEnum E>
void to_json(nlohmann::json& j, const E& value) {
  j = to_word(value);
}
template <WordEnum E>
void from_json(const nlohmann::json& j, E& value) {
  const auto& word = j.get_ref<const std::string&>();
  const std::optional<E> known = from_word<E>(word);
  if (!known) {
    throw nlohmann::json::other_error::create(
        501, "expected one of " + all_words<E>() + "; found \"" + printable_line(word, 80) + "\"",
        &j);
  }
  value = *known;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RopeScalingSpec, factor, low_freq_factor,
                                                high_freq_factor, original_max_len)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ModelSpec, preset, arch, dim, layers, heads,
                                                kv_heads, ffn, vocab, rope_theta, norm_eps,
                                                tied_embeddings, rope_scaling, max_positions,
                                                head_dim, sliding_window, init_std)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(BlendPart, path, weight)
inline void to_json(nlohmann::json& j, const DataSpec& s) {
  j = {{"path", s.path},           {"blend", s.blend},    {"split", s.split},
       {"tokenizer", s.tokenizer}, {"format", s.format},  {"chat_template", s.chat_template},
       {"mask", s.mask},           {"seq_len", s.seq_len}};
}
inline void from_json(const nlohmann::json& j, DataSpec& s) {
  const DataSpec initial;
  s.path = j.value("path", initial.path);
  s.blend = j.value("blend", initial.blend);
  s.tokenizer = j.value("tokenizer", initial.tokenizer);
  s.format = j.value("format", initial.format);
  s.chat_template = j.value("chat_template", initial.chat_template);
  s.split = j.value("split", initial.split);
  s.mask = j.value("mask", initial.mask);
  s.seq_len = j.value("seq_len", initial.seq_len);
  // The mask of specs that were stored before it had this name.
  if (j.value("reset_at_documents", false)) s.mask = DocumentMask::kDocuments;
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ValidationSpec, every_steps, sequences)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RampPoint, samples, global)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(BatchSpec, micro, global, ramp)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(OptimizerSpec, lr, beta1, beta2, eps, weight_decay,
                                                no_decay, moments, master, clip)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ScheduleSpec, name, unit, warmup_steps, decay_steps,
                                                decay, min_lr_ratio)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LoraSpec, base, rank, alpha, targets)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LossSpec, z_loss, chunk_tokens)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(MemorySpec, activation_checkpointing, every,
                                                offload)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StabilitySpec, policy, spikes, window, z_score,
                                                factor, rollback_steps, skip_steps, max_skips,
                                                reexecute)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(MetricsSpec, tensorboard, trace_from, trace_steps)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LossScaleSpec, initial, growth_interval, hysteresis,
                                                min)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(GpuSpec, attention, deterministic)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(DegreesSpec, pipeline, context, tensor, expert)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TrainSpec, model, lora, data, validation, batch,
                                                steps, seed, optimizer, schedule, loss, stability,
                                                strategy, shard_group, reshard_after_forward,
                                                degrees, memory, metrics, precision, loss_scale,
                                                gpu)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ChosenValue, key, value, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ChosenValues, basis, values)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(MirrorSpec, dir, every, after_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(CheckpointSpec, dir, every_steps, every_minutes,
                                                keep, keep_every, verify_before_delete, resume,
                                                mirror)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SnapshotSpec, every_steps, replicas)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(HangRule, pattern, within_ms, first_ms, action)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RecoverySpec, max_restarts, window_ms,
                                                heartbeat_timeout_ms, hang_timeout_ms, grace_ms,
                                                standbys, standby_imports, snapshot, straggler,
                                                on_node_loss, observe, hang_rules)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Limits, launch_ms, register_ms, start_ms, abort_ms,
                                                stop_ms, first_step_ms, last_checkpoint_ms, end_ms,
                                                directory_ms, orphan_ms, storage_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ContainerSpec, image, mounts)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SlurmSpec, partition, account, qos, time_minutes,
                                                exclusive, gres, constraint, reservation, nodelist,
                                                exclude, mem_mb, container, cpus_per_task,
                                                warning_seconds, dependency, begin, mail_user,
                                                mail_type, licenses, nice, comment, extra,
                                                requeue_at_limit)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(EnvironmentSpec, kind, path)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(HooksSpec, pre, post, timeout_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(HealthSpec, preflight)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NotifySpec, webhook, webhook_file, command, on)

}  // namespace hpctl
