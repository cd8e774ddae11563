// SPDX-License-Identifier: Apache-2.0
#include "agent/worker_command.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "agent/error_file.h"
#include "agent/holder/progress_file.h"
#include "agent/holder/python_standby_order.h"
#include "common/net/packet_socket.h"
#include "common/net/port.h"
#include "common/process/python_command.h"
#include "common/worker/worker_abi.h"
#include "common/worker/workload.h"

namespace hpctl::agent {
namespace {

// One thread per worker and operation unless the user says otherwise: the thread count changes the
// bits of a result, and workers share the node's processors. A command gets what torchrun would set
// and no more.
std::vector<std::string> thread_counts(const v1::StartWorkers& start) {
  if (start.command_size() > 0) return {"OMP_NUM_THREADS"};
  return {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"};
}

// Without a document for the built-in trainer there is no page with its steps either.
bool tells_steps(const v1::StartWorkers& start) { return start.workload_json().empty(); }

// torchrun's variables for its workers, and our own. One role, and all of it is of this generation,
// so every rank gets the same.
std::map<std::string, std::string> torchrun_environment(const v1::StartWorkers& start,
                                                        int32_t local_rank,
                                                        const NodePlace& place) {
  std::map<std::string, std::string> env = {
      {"RANK", std::to_string(start.ranks(local_rank))},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"WORLD_SIZE", std::to_string(start.world_size())},
      {"LOCAL_WORLD_SIZE", std::to_string(start.ranks_size())},
      {"GROUP_RANK", std::to_string(start.group_rank())},
      {"GROUP_WORLD_SIZE", std::to_string(start.group_world_size())},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", std::to_string(start.ranks(local_rank))},
      {"ROLE_WORLD_SIZE", std::to_string(start.world_size())},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(start.restart_count())},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(start.max_restarts())},
      {"TORCHELASTIC_RUN_ID", std::to_string(place.job)},
      // Rank 0 itself serves the store at MASTER_ADDR:MASTER_PORT.
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCHELASTIC_ERROR_FILE",
       error_file_path(place, start.generation(), start.ranks(local_rank))},
      {"HPCTL_JOB_ID", std::to_string(place.job)},
      {"HPCTL_GENERATION", std::to_string(start.generation())},
      {"HPCTL_NODE", place.node}};
  if (tells_steps(start)) {
    env["HPCTL_PROGRESS_FILE"] =
        progress_file_path(place.progress_directory(), start.generation(), start.ranks(local_rank));
  }
  if (!start.master_addr().empty()) {
    env["MASTER_ADDR"] = start.master_addr();
    env["MASTER_PORT"] = std::to_string(start.master_port());
  }
  return env;
}

// As its bin/activate does it.
void activate_venv(const std::string& venv, std::map<std::string, std::string>& env) {
  const auto given = env.find("PATH");
  const char* inherited = std::getenv("PATH");
  const std::string path = given != env.end()     ? given->second
                           : inherited != nullptr ? inherited
                                                  : "/usr/local/bin:/usr/bin:/bin";
  env["PATH"] = venv + "/bin:" + path;
  env["VIRTUAL_ENV"] = venv;
  env["PYTHONHOME"] = "";  // Python takes it for not set
}

// The variables that do not depend on the rank.
Result<std::map<std::string, std::string>> common_environment(const v1::StartWorkers& start,
                                                              const NodePlace& place) {
  std::map<std::string, std::string> env;
  for (const std::string& name : thread_counts(start)) {
    if (std::getenv(name.c_str()) == nullptr) env[name] = "1";
  }
  for (const auto& [name, value] : place.machine_variables) {
    if (std::getenv(name.c_str()) == nullptr) env[name] = value;
  }
  for (const auto& [name, value] : start.env()) {
    if (name.empty() || name.find('=') != std::string::npos ||
        (name + value).find('\0') != std::string::npos) {
      return Error{ErrorCode::kInvalidArgument, "not a name of an environment variable: " + name};
    }
    env[name] = value;
  }
  if (!start.venv().empty()) activate_venv(start.venv(), env);
  return env;
}

std::vector<std::string> entries_of(const std::map<std::string, std::string>& env) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : env) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<std::string> trainer_command(const NodePlace& place) {
  return {place.program_directory + "/hptrain"};
}

// Its text replaces a workload.
Result<std::vector<std::string>> python_standby_command(const v1::StartWorkers& start,
                                                        const NodePlace& place) {
  const auto python =
      python_command_in(place.job_directory, {start.command().begin(), start.command().end()});
  if (!python) {
    return Error{ErrorCode::kInvalidArgument,
                 "the command does not start Python in a known way, nor is it a script that names "
                 "Python in its first line"};
  }
  std::string imports;
  for (const std::string& module : start.standby_imports()) {
    imports += (imports.empty() ? "" : ",") + module;
  }
  return hpctl::python_standby_command(*python, imports, {kWorkloadFd, kControlFd});
}

Result<std::string> workload_document(const v1::StartWorkers& start, int32_t local_rank,
                                      const NodePlace& place) {
  if (start.workload_json().empty()) return std::string();  // workload.command needs none
  HP_TRY_ASSIGN(Workload workload, workload_from_json(start.workload_json()));
  workload.rank = start.ranks(local_rank);
  workload.local_rank = local_rank;
  workload.node = place.node;
  return to_json_text(workload);
}

}  // namespace

Result<holder::Spawn> make_spawn(const v1::StartWorkers& start, int32_t local_rank,
                                 const NodePlace& place) {
  holder::Spawn spawn;
  spawn.generation = start.generation();
  spawn.rank = start.ranks(local_rank);
  spawn.local_rank = local_rank;
  spawn.argv.assign(start.command().begin(), start.command().end());
  if (spawn.argv.empty()) spawn.argv = trainer_command(place);
  HP_TRY_ASSIGN(auto env, common_environment(start, place));
  for (auto& [name, value] : torchrun_environment(start, local_rank, place)) env[name] = value;
  spawn.env = entries_of(env);
  spawn.directory = place.job_directory;
  spawn.log_path = start.log_dir() + "/rank-" + std::to_string(spawn.rank) + ".log";
  HP_TRY_ASSIGN(spawn.workload, workload_document(start, local_rank, place));
  spawn.python = start.standby_imports_size() > 0 ? 1 : 0;
  spawn.hang_patterns.assign(start.hang_patterns().begin(), start.hang_patterns().end());
  if (holder::encode(holder::ToHolder(spawn)).size() > kMaxPacketBytes) {
    return Error{ErrorCode::kInvalidArgument, "command, env.set and workload together exceed " +
                                                  std::to_string(kMaxPacketBytes >> 10) +
                                                  " KiB; shorten them"};
  }
  return spawn;
}

Result<holder::Spawn> make_standby(const v1::StartWorkers& start, const NodePlace& place) {
  holder::Spawn spawn;
  spawn.generation = start.generation();
  spawn.rank = spawn.local_rank = -1;
  spawn.argv = trainer_command(place);
  if (start.command_size() > 0) {
    HP_TRY_ASSIGN(spawn.argv, python_standby_command(start, place));
    spawn.workload = python_standby_text();
  }
  HP_TRY_ASSIGN(const auto env, common_environment(start, place));
  spawn.env = entries_of(env);
  spawn.directory = place.job_directory;
  spawn.log_path = start.log_dir() + "/standby-" + place.node + ".log";
  return spawn;
}

Outcome prepare_command(const v1::StartWorkers& start, const NodePlace& place) {
  if (start.command_size() == 0) return Ok{};
  for (const int32_t rank : start.ranks()) {
    HP_TRY(prepare_error_file(place, start.generation(), rank));
  }
  if (tells_steps(start)) {
    HP_TRY(prepare_progress_files(place.progress_directory(), start.generation(),
                                  {start.ranks().begin(), start.ranks().end()}));
  }
  const bool has_rank_0 =
      std::find(start.ranks().begin(), start.ranks().end(), 0) != start.ranks().end();
  if (!has_rank_0 || start.master_port() == 0) return Ok{};
  Outcome free = check_port_free(static_cast<uint16_t>(start.master_port()));
  if (free.ok()) return Ok{};
  return Error{free.error().code,
               "MASTER_PORT: " + free.error().message + "; the next generation gets another"};
}

}  // namespace hpctl::agent
