// SPDX-License-Identifier: Apache-2.0
#include "agent/messages.h"

namespace hpctl::agent {

v1::AgentMessage envelope(uint64_t job, const std::string& node, const std::string& boot_id) {
  v1::AgentMessage message;
  message.set_job(job);
  message.set_node(node);
  message.set_boot_id(boot_id);
  return message;
}

v1::Register to_message(const NodeFacts& facts, const holder::Hello& hello,
                        const std::string& address) {
  v1::Register message;
  message.set_instance_id(facts.instance_id);
  message.set_holder_pid(hello.holder_pid);
  auto& capabilities = *message.mutable_capabilities();
  for (const auto& [name, value] : facts.capabilities) capabilities[name] = value;
  if (!address.empty()) capabilities["address"] = address;
  capabilities["tells_standbys"] = "1";
  capabilities["beats_as_told"] = "1";
  capabilities["confirms_damage"] = "1";
  if (hello.probe_port != 0) capabilities["probe_port"] = std::to_string(hello.probe_port);
  return message;
}

Reported reported_before(const holder::Hello& hello) {
  return {{hello.committed_generation, hello.committed_step},
          {hello.bad_step_generation, hello.bad_step_number}};
}

ActionKey key_of(const v1::StartWorkers& start) {
  return {start.action_seq(), start.action_index()};
}

static v1::Seal to_message(const Seal& seal) {
  v1::Seal message;
  message.set_step(seal.step);
  message.set_digest(seal.digest);
  message.set_generation(seal.generation);
  return message;
}

v1::WorkerExited to_message(const holder::Exited& exit) {
  v1::WorkerExited message;
  message.set_generation(exit.generation);
  message.set_rank(exit.rank);
  message.set_pid(exit.pid);
  message.set_exit_code(exit.exit_code);
  message.set_signal(exit.signal);
  message.set_last_step(exit.last_step);
  message.set_message(exit.message);
  message.set_by_request(exit.by_request != 0);
  for (const Seal& seal : exit.seals.own) *message.add_seals() = to_message(seal);
  for (const Seal& seal : exit.seals.copies) *message.add_copies() = to_message(seal);
  message.set_part(exit.seals.part);
  message.set_parts(exit.seals.parts);
  message.set_copied_part(exit.seals.copied_part);
  if (exit.fault != FileFault{}) {
    v1::FileFault& fault = *message.mutable_fault();
    fault.set_file(exit.fault.file);
    fault.set_offset(exit.fault.offset);
    fault.set_bytes(exit.fault.bytes);
    fault.set_error(exit.fault.error);
  }
  return message;
}

v1::ActionDone to_message(const Done& done) {
  v1::ActionDone message;
  message.set_action_seq(done.key.seq);
  message.set_action_index(done.key.index);
  message.set_generation(done.generation);
  for (const StartedWorker& worker : done.workers) *message.add_workers() = to_message(worker);
  message.set_stacks(done.stacks);
  return message;
}

v1::ActionFailed to_message(const Failed& failed) {
  v1::ActionFailed message;
  message.set_action_seq(failed.key.seq);
  message.set_action_index(failed.key.index);
  message.set_generation(failed.generation);
  message.set_reason(failed.reason);
  message.set_permanent(failed.permanent);
  message.set_node_fault(failed.node_fault);
  message.set_hardware(failed.hardware);
  message.set_reboot(failed.reboot);
  return message;
}

v1::CheckpointCommitted to_message(const Commit& commit) {
  v1::CheckpointCommitted message;
  message.set_generation(commit.generation);
  message.set_step(commit.step);
  return message;
}

v1::BadStep to_message(const BadStepNews& news) {
  const BadStep& step = news.step;
  v1::BadStep message;
  message.set_generation(news.mark.generation);
  message.set_number(step.number);
  message.set_step(step.step);
  message.set_resumed_step(step.resumed_step);
  message.set_samples(step.samples);
  message.set_finding(static_cast<uint32_t>(step.finding));
  message.set_verdict(static_cast<uint32_t>(step.verdict));
  message.set_outcome(static_cast<uint32_t>(step.outcome));
  message.set_blamed_rank(step.blamed_rank);
  message.set_reason(step.reason);
  message.set_missed(news.missed);
  return message;
}

v1::RunningWorker to_message(const StartedWorker& worker) {
  v1::RunningWorker message;
  message.set_rank(worker.rank);
  message.set_generation(worker.generation);
  message.set_pid(worker.pid);
  message.set_origin(static_cast<uint32_t>(worker.origin));
  return message;
}

v1::WorkerProgress to_message(const StartedWorker& worker, const ProgressSample& sample) {
  v1::WorkerProgress message;
  message.set_rank(worker.rank);
  message.set_generation(worker.generation);
  message.set_pid(worker.pid);
  message.set_phase(sample.phase);
  message.set_step(sample.step);
  message.set_collective(sample.collective);
  message.set_open_collectives(sample.open_collectives);
  message.set_computing(sample.computing);
  message.set_loss(sample.loss);
  message.set_grad_norm(sample.grad_norm);
  message.set_tokens(sample.tokens);
  message.set_step_ns(ns_of(sample.step_took));
  message.set_checkpoint_step(sample.checkpoint_step);
  message.set_start_unix_ns(unix_ns_of(sample.started));
  message.set_first_step_unix_ns(unix_ns_of(sample.first_step));
  for (const GroupSample& from : sample.groups) {
    v1::GroupProgress& group = *message.add_groups();
    group.set_kind(from.kind);
    group.set_first(from.first);
    group.set_last(from.last);
    group.set_begun(from.begun);
    group.set_completed(from.completed);
    group.set_waits(from.waits);
  }
  if (sample.step == 0 || sample.told_by_program) return message;
  const StepFigures& from = sample.figures;
  v1::StepFigures& figures = *message.mutable_figures();
  figures.set_learning_rate(from.learning_rate);
  figures.set_flops(from.flops);
  figures.set_flops_causal(from.flops_causal);
  figures.set_mfu(from.mfu);
  figures.set_mfu_causal(from.mfu_causal);
  figures.set_peak_memory_bytes(from.peak_memory_bytes);
  figures.set_compute_ns(from.compute_ns);
  figures.set_data_wait_ns(from.data_wait_ns);
  figures.set_communication_ns(from.communication_ns);
  figures.set_communication_wait_ns(from.communication_wait_ns);
  figures.set_saves_without_room(from.saves_without_room);
  figures.set_data_waits_ns(from.data_waits_ns);
  figures.set_save_waits_ns(from.save_waits_ns);
  figures.set_snapshot_step(from.snapshot_step);
  figures.set_saves_out_of_space(from.saves_out_of_space);
  figures.set_storage_failures(from.storage_failures);
  return message;
}

}  // namespace hpctl::agent
