// SPDX-License-Identifier: Apache-2.0
// hpstacks: writes the native stacks of ranks that hang, each into DIR/gGENERATION-rankNNNN.txt,
// and the dumps of their flight recorders, if PyTorch has any, into DIR/gGENERATION-recorder-NNNN.
//
// The holder starts it (agent/holder/stack_taker.h), for any workload: the ranks need not answer.
// Files are written when the processes run again, because a directory may not answer.
//
// For each file of stacks it prints a line on stdout: "rank 3 in FUNCTION (MODULE)". If it triggers
// recorders, a line before them says so (common/job/stack_files.h), and one after them names the
// dumps.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "agent/stacks/rank_stacks.h"
#include "agent/stacks/reader.h"
#include "agent/stacks/recorders.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/job/stack_files.h"
#include "common/recorder/verdict.h"

namespace {

using hpctl::stacks::outdated;
using hpctl::stacks::RankStacks;
using hpctl::stacks::read_stacks;
using hpctl::stacks::telling_frame;
using hpctl::stacks::to_text;

constexpr char kUsage[] =
    R"(usage: hpstacks DIR GENERATION RANK:PID...

Writes the native stacks of processes and of what they started themselves into
DIR/gGENERATION-rankRANK.txt, and what their flight recorders of PyTorch dump into
DIR/gGENERATION-recorder-RANK. hpagent starts it when a job hangs.

Exit codes: 0 all files are written; 1 some are not, named on stderr; 2 wrong usage.
)";

// "3:4711"
bool add_rank(const std::string& argument, uint64_t generation, std::vector<RankStacks>& ranks) {
  char* end = nullptr;
  const long rank = std::strtol(argument.c_str(), &end, 10);
  if (end == argument.c_str() || *end != ':') return false;
  const long pid = std::strtol(end + 1, &end, 10);
  if (*end != '\0' || rank < 0 || pid <= 0) return false;
  ranks.push_back({static_cast<int32_t>(rank), generation, {{static_cast<pid_t>(pid), {}, {}}}});
  return true;
}

// At once: who reads it may end us.
void say(const std::string& line) {
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}

bool write(const std::string& directory, const RankStacks& rank) {
  const std::string path =
      directory + "/" + hpctl::stack_file(rank.generation, std::to_string(rank.rank));
  const auto written =
      hpctl::write_file_atomic(path, to_text(rank, hpctl::SystemClock().wall_ms()));
  if (!written.ok()) {
    hpctl::log_error(written.error().message);
    return false;
  }
  say("rank " + std::to_string(rank.rank) + " in " + telling_frame(rank) + "\n");
  return true;
}

void remove_outdated(const std::string& directory) {
  const auto names = hpctl::list_directory(directory);
  if (!names.ok()) return;
  // Another node may have removed it before us.
  for (const std::string& name : outdated(*names)) ::unlink((directory + "/" + name).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  hpctl::set_log_component("hpstacks");
  const std::string directory = argc > 3 ? argv[1] : "";
  const uint64_t generation = argc > 3 ? std::strtoull(argv[2], nullptr, 10) : 0;
  std::vector<RankStacks> ranks;
  bool well_formed = generation > 0;
  for (int i = 3; i < argc && well_formed; ++i) {
    well_formed = add_rank(argv[i], generation, ranks);
  }
  if (!well_formed) {
    std::fputs(kUsage, argc == 2 && std::string(argv[1]) == "--help" ? stdout : stderr);
    return argc == 2 && std::string(argv[1]) == "--help" ? 0 : 2;
  }
  hpctl::stacks::find_processes(ranks);
  hpctl::stacks::Recorders recorders(ranks);
  if (recorders.are_asked()) say(std::string(hpctl::kRecordersAreAsked));
  read_stacks(ranks);
  const std::string job_directory = std::filesystem::path(directory).parent_path().string();
  const auto made = hpctl::make_directories_below(job_directory, directory);
  if (!made.ok()) {
    hpctl::log_error(made.error().message);
    return 1;
  }
  bool all = true;
  for (const RankStacks& rank : ranks) all = write(directory, rank) && all;
  const std::vector<int32_t> dumped = recorders.take(directory);
  if (!dumped.empty()) say("flight recorders of " + hpctl::recorder::ranks_text(dumped) + "\n");
  remove_outdated(directory);
  return all ? 0 : 1;
}
