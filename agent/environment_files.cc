// SPDX-License-Identifier: Apache-2.0
#include "agent/environment_files.h"

#include <utility>
#include <vector>

#include "common/job/environment_file.h"

namespace hpctl::agent {

void EnvironmentFiles::read(const v1::StartWorkers& start) {
  waiting_ = start;
  is_newer_ = reader_.is_busy();
  if (!is_newer_) begin();
}

void EnvironmentFiles::begin() {
  result_ = std::make_shared<std::optional<Variables>>();
  const std::vector<std::string> files(waiting_->env_files().begin(), waiting_->env_files().end());
  reader_.start([result = result_, files] { result->emplace(read_environment_files(files)); });
}

std::optional<EnvironmentFiles::Read> EnvironmentFiles::take() {
  if (!reader_.take_end()) return std::nullopt;
  const auto result = std::exchange(result_, nullptr);
  if (!waiting_) return std::nullopt;
  if (std::exchange(is_newer_, false)) {
    begin();
    return std::nullopt;
  }
  Read read{*std::exchange(waiting_, std::nullopt)};
  const Variables& variables = **result;
  if (!variables.ok()) {
    read.outcome = variables.error();
  } else {
    read.start.mutable_env()->insert(variables->begin(), variables->end());  // env.set stays
  }
  return read;
}

std::optional<v1::StartWorkers> EnvironmentFiles::withdraw(uint64_t through) {
  if (!waiting_ || waiting_->generation() > through) return std::nullopt;
  return std::exchange(waiting_, std::nullopt);
}

}  // namespace hpctl::agent
