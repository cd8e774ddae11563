// SPDX-License-Identifier: Apache-2.0
#include "slurm-plugins/hpslurm/sbatch.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <csignal>

#include "common/base/fd.h"
#include "common/process/memory_file.h"

namespace hpctl::slurm {
namespace {

std::string contents(const UniqueFd& fd) {
  constexpr size_t kMost = 4096;
  std::string text(kMost, '\0');
  const ssize_t got = ::pread(fd.get(), text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

// Variables for sbatch itself would count more than the lines of the script.
std::vector<char*> variables(std::vector<std::string>& environment) {
  std::vector<char*> pointers;
  for (std::string& variable : environment) {
    if (!variable.starts_with("SBATCH_")) pointers.push_back(variable.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

struct Streams {
  UniqueFd in;
  UniqueFd out;
  UniqueFd err;
};

Result<int> run_sbatch(std::vector<std::string> environment, const Streams& streams) {
  std::string program = "sbatch";
  std::string option = "--parsable";
  char* const arguments[] = {program.data(), option.data(), nullptr};
  const std::vector<char*> pointers = variables(environment);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("cannot start sbatch");
  if (pid == 0) {
    const bool tied = ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && ::getppid() == parent;
    const bool redirected = ::dup2(streams.in.get(), STDIN_FILENO) >= 0 &&
                            ::dup2(streams.out.get(), STDOUT_FILENO) >= 0 &&
                            ::dup2(streams.err.get(), STDERR_FILENO) >= 0;
    if (tied && redirected) ::execvpe(program.c_str(), arguments, pointers.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return errno_error("cannot wait for sbatch");
  }
  return status;
}

// "sbatch: error: A\nsbatch: error: B\n" -> "A; B".
std::string words_of_sbatch(const std::string& text) {
  std::string words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    for (const std::string prefix : {"sbatch: ", "error: ", "fatal: "}) {
      if (line.starts_with(prefix)) line.erase(0, prefix.size());
    }
    const std::string of_submission = "Batch job submission failed: ";
    if (line.starts_with(of_submission)) line.erase(0, of_submission.size());
    if (!line.empty() && !line.starts_with("Try \"sbatch"))
      words += (words.empty() ? "" : "; ") + line;
    begin = end + 1;
  }
  return words;
}

}  // namespace

Answer submit_by_sbatch(const SlurmSubmission& submission) {
  HP_TRY_ASSIGN(UniqueFd script, make_memory_file("script", submission.script));
  HP_TRY_ASSIGN(UniqueFd out, make_memory_file("out", ""));
  HP_TRY_ASSIGN(UniqueFd err, make_memory_file("err", ""));
  const Streams streams{std::move(script), std::move(out), std::move(err)};
  HP_TRY_ASSIGN(const int status, run_sbatch(submission.environment, streams));
  const std::string what = "Slurm does not accept the job";
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 127) {
    return Error{ErrorCode::kFailedPrecondition,
                 "the job's options need sbatch, which cannot be run on this machine"};
  }
  // "JOB[;CLUSTER]"
  const std::string answer = contents(streams.out);
  const bool accepted = WEXITSTATUS(status) == 0 && !answer.empty() &&
                        std::isdigit(static_cast<unsigned char>(answer[0])) != 0;
  if (accepted) return nlohmann::json{{"job", std::stoul(answer)}};
  Error refused = error_in_words(what, words_of_sbatch(contents(streams.err)));
  if (refused.code == ErrorCode::kNotFound) refused.code = ErrorCode::kInvalidArgument;
  return refused;
}

}  // namespace hpctl::slurm
