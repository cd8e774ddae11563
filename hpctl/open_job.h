// SPDX-License-Identifier: Apache-2.0
// The beginning of every verb about one job: the home, the job, and its source of answers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/job/paths.h"
#include "hpctl/command_line.h"
#include "hpctl/controller_client.h"
#include "hpctl/job_source.h"

namespace hpctl {

struct OpenJob {
  HomePaths paths;
  JobId id;
  std::unique_ptr<JobSource> source;
  JobView view;        // as the job was when it was opened
  std::string choice;  // FoundJob::choice

  // Whether the file system of the job's directory answers. If not, a verb shows what it knows
  // without that directory.
  bool has_files() const;
  // lost_job_directory(), and "" if the file system does not answer.
  std::string lost_directory() const;
  // If its saves fail: what is wrong with the checkpoint directory, as seen from here. "" =
  // nothing.
  std::string saves_problem() const;
  // For people: what the answer is worth, and whether it lacks what the files tell. "" = all is
  // well.
  std::string notice() const;
};

// The id that `word` is; nullopt if it is a name.
std::optional<JobId> id_in(const std::string& word);

// A job that this home does not have.
struct RemoteJob {
  HomePaths paths;  // of its own home, which need not be visible here
  JobId id;
  std::unique_ptr<ControllerClient> client;
  JobView view;
};
// `word`: the id of a job whose controller runs at a cluster controller: a job of the caller, or of
// any user if the caller is a reader or an operator there (docs/security.md). `not_here` if no
// source knows more.
Result<RemoteJob> open_elsewhere(const std::string& word, const Error& not_here);

// `word` is an id or a name of a job of this home (find_job), or an id as above. Never starts a
// controller. If the home's file system does not answer, the job is found at a controller that is
// known without it: the home's local one, one of a Slurm job on this machine, or at a cluster
// controller. Otherwise kUnavailable.
Result<OpenJob> open_job(const std::string& word);
// The first argument of a verb; says on standard error which of several jobs it is.
Result<OpenJob> open_job(const Invocation& invocation);

}  // namespace hpctl
