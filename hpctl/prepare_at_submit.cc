// SPDX-License-Identifier: Apache-2.0
#include "hpctl/prepare_at_submit.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "common/base/bounded_json.h"
#include "common/base/checksum.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/rpc/spawn.h"
#include "hpctl/prepared_data.h"
#include "trainer/data/prepared_note.h"
#include "trainer/data/token_source.h"

namespace hpctl {
namespace {

Outcome check_tokenizer(const std::string& prefix, const std::string& tokenizer) {
  HP_TRY_ASSIGN(const auto note, read_prepared_note(prefix));
  if (!note) return Ok{};  // Megatron-LM leaves none
  HP_TRY_ASSIGN(const std::string bytes, read_file(tokenizer, 256U << 20));
  Sha256 sha;
  sha.update(bytes);
  if (note->tokenizer_hash == sha.hex_digest()) return Ok{};
  return Error{ErrorCode::kInvalidArgument,
               "data " + prefix + " was prepared with another tokenizer (" + note->tokenizer +
                   ") than workload.train.data.tokenizer, " + tokenizer +
                   "; name that one, or prepare the data again"};
}

// Everything that comes through the pipe until its end.
Result<std::string> read_all(int fd) {
  std::string text;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t n = ::read(fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("cannot read what hpdata says");
    if (n == 0) return text;
    text.append(piece.data(), static_cast<size_t>(n));
  }
}

// What hpdata prints.
Result<std::string> run_hpdata(const std::vector<std::string>& words) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  HP_TRY_ASSIGN(const pid_t pid, spawn_with_stdio(words, {STDIN_FILENO, to.get(), STDERR_FILENO}));
  to.reset();
  const auto text = read_all(from.get());
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return text;
}

Result<std::string> prepare_one(const std::string& path, const TrainSpec& train,
                                const PreparedData& prepared, const Terminal& terminal) {
  HP_TRY_ASSIGN(const std::string directory, program_directory());
  HP_TRY_ASSIGN(
      const std::string text,
      run_hpdata({directory + "/hpdata", "cache", "--tokenizer=" + train.data.tokenizer,
                  "--directory=" + prepared.directory(),
                  "--max-bytes=" + std::to_string(kMaxPreparedAtSubmit),
                  "--vocabulary=" + std::to_string(train.model.vocab),
                  "--workers=" + std::to_string(std::max(1U, std::thread::hardware_concurrency())),
                  "--", path}));
  const auto answer = parse_json_or_discard(text);
  if (answer.is_object() && answer.contains("error")) {
    return Error{ErrorCode::kFailedPrecondition, answer["error"].get<std::string>()};
  }
  if (!answer.is_object() || !answer.contains("prefix")) {
    return Error{ErrorCode::kInternal, "hpdata ended without an answer while it prepared " + path};
  }
  const auto prefix = answer["prefix"].get<std::string>();
  if (answer.value("new", false)) {
    terminal.err << "hpctl: data " << printable(path) << " prepared as " << printable(prefix)
                 << std::endl;
  }
  return prefix;
}

}  // namespace

Outcome prepare_text(JobSpec& spec, const HomePaths& paths, const Terminal& terminal) {
  if (!spec.train || spec.train->data.tokenizer == "byte") return Ok{};
  DataSpec& data = spec.train->data;
  std::vector<std::string*> places;
  if (data.blend.empty()) places.push_back(&data.path);
  for (BlendPart& part : data.blend) places.push_back(&part.path);
  const PreparedData prepared(paths);
  {
    const UniqueFd held = prepared.hold();
    for (std::string* path : places) {
      if (is_prepared(*path)) {
        HP_TRY(check_tokenizer(*path, data.tokenizer));
      } else if (path_exists(*path)) {
        HP_TRY_ASSIGN(*path, prepare_one(*path, *spec.train, prepared, terminal));
      }
      prepared.mark_used(*path);
    }
  }
  for (const std::string& prefix : prepared.remove_unused(::time(nullptr))) {
    terminal.err << "hpctl: data " << printable(prefix) << " removed: no job has used it for "
                 << kUnusedDataSeconds / (24 * 60 * 60) << " days" << std::endl;
  }
  return Ok{};
}

}  // namespace hpctl
