// SPDX-License-Identifier: Apache-2.0
#include "agent/network/check_network.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "agent/network/coordinator.h"
#include "agent/network/member.h"
#include "agent/probes/check.h"
#include "common/base/file.h"
#include "common/base/node_address.h"
#include "common/base/paths.h"

namespace hpctl::agent {
namespace {

constexpr char kHelp[] =
    R"(usage: srun --ntasks-per-node=1 [-N NODES] hpagent check network [--json]
       hpagent check network --rank R --ranks N --meeting FILE [--name NAME] [--json]

Names the nodes and the links between nodes that are slow or dead. Pairs of nodes exchange as much
as they can for 0.4 s over TCP, all pairs at once, in about log2(nodes) rounds; what was bad is
tried again before it is named. Slow is less than half of the median. Rank 0 prints the verdict.
Nothing is changed; the network is busy for some seconds.

It looks at the network of the nodes' addresses (the default route). EFA devices are looked at by
hpagent check efa. A fault of the path between two nodes that are sound otherwise is found where no
more than one bit of their numbers differs; bad nodes are always found.

  --json      {"verdict", "rounds", "pairs", "seconds", "median_bytes_per_s",
              "nodes": [{"name", "state", "share"}], "links": [{"names", "state", "share", "sure"}],
              "absent": [RANK]}: state is slow or dead, share that of the median, not sure where it
              may be either node as well
  --rank R, --ranks N, --name NAME
              without Slurm: number of this process, of how many, and what its node is called
  --meeting FILE
              by which the processes find each other; on a file system that all see. With srun it is
              in HPCTL_HOME
  --patience SECONDS
              for all processes to come, 1 to 3600 (60)

Exit codes: 0 all is well, 1 something is slow, dead or absent, or this process could not take part,
2 wrong usage.
)";

struct Options {
  int rank = -1;
  int ranks = 0;
  std::string name;
  std::string meeting;
  int patience_s = 60;
  bool json = false;
};

int number_of(const char* text) { return text == nullptr ? -1 : std::atoi(text); }

// What srun says to its tasks.
void fill_from_slurm(Options& options) {
  const char* job = std::getenv("SLURM_JOB_ID");
  const char* step = std::getenv("SLURM_STEP_ID");
  if (job == nullptr || step == nullptr) return;
  options.rank = number_of(std::getenv("SLURM_PROCID"));
  options.ranks = number_of(std::getenv("SLURM_STEP_NUM_TASKS"));
  if (const char* node = std::getenv("SLURMD_NODENAME"); node != nullptr) options.name = node;
  if (const auto home = home_from_environment(); home.ok()) {
    options.meeting = home->home() + "/network-checks/" + job + "." + step;
  }
}

std::optional<Options> parse(const std::vector<std::string>& arguments) {
  Options options;
  options.name = host_name();
  fill_from_slurm(options);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--json") {
      options.json = true;
      continue;
    }
    if (i + 1 == arguments.size()) return std::nullopt;
    const std::string& value = arguments[++i];
    if (word == "--rank") {
      options.rank = number_of(value.c_str());
    } else if (word == "--ranks") {
      options.ranks = number_of(value.c_str());
    } else if (word == "--name") {
      options.name = value;
    } else if (word == "--meeting") {
      options.meeting = value;
    } else if (word == "--patience") {
      options.patience_s = number_of(value.c_str());
    } else {
      return std::nullopt;
    }
  }
  const bool fits = options.ranks >= 1 && options.ranks <= 1 << 16 && options.rank >= 0 &&
                    options.rank < options.ranks && options.patience_s >= 1 &&
                    options.patience_s <= 3'600 && !options.meeting.empty();
  if (!fits) return std::nullopt;
  return options;
}

std::string state_of(bool dead) { return dead ? "dead" : "slow"; }

std::string share_text(bool dead, double share) {
  if (dead) return "dead: it carries nothing";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "slow: it carries %.0f %% of the median", 100 * share);
  return text.data();
}

std::string to_json(const NetworkReport& report) {
  const auto name = [&](int32_t index) { return report.names[static_cast<size_t>(index)]; };
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (const auto& node : report.verdict.nodes) {
    nodes.push_back(
        {{"name", name(node.node)}, {"state", state_of(node.dead)}, {"share", node.share}});
  }
  nlohmann::ordered_json links = nlohmann::ordered_json::array();
  for (const auto& link : report.verdict.links) {
    links.push_back({{"names", {name(link.pair.a), name(link.pair.b)}},
                     {"state", state_of(link.dead)},
                     {"share", link.share},
                     {"sure", !link.blames_nobody}});
  }
  return nlohmann::ordered_json{{"verdict", report.is_good() ? "pass" : "fail"},
                                {"rounds", report.verdict.rounds},
                                {"pairs", report.verdict.pairs},
                                {"seconds", report.seconds},
                                {"median_bytes_per_s", report.verdict.median_bytes_per_s},
                                {"nodes", std::move(nodes)},
                                {"links", std::move(links)},
                                {"absent", report.absent}}
             .dump() +
         "\n";
}

std::string to_text(const NetworkReport& report) {
  const auto name = [&](int32_t index) { return report.names[static_cast<size_t>(index)]; };
  std::string text;
  for (const int rank : report.absent) {
    text += "fail  rank " + std::to_string(rank) + " did not come\n";
  }
  for (const auto& node : report.verdict.nodes) {
    text += "fail  node " + name(node.node) + " is " + share_text(node.dead, node.share) + "\n";
  }
  for (const auto& link : report.verdict.links) {
    text += "fail  the link " + name(link.pair.a) + " - " + name(link.pair.b) + " is " +
            share_text(link.dead, link.share) +
            (link.blames_nobody ? ", or one of the two nodes is" : "") + "\n";
  }
  std::array<char, 160> last{};
  std::snprintf(last.data(), last.size(),
                "%s: %zu nodes, %zu pairs in %d rounds and %.1f s; median %.3g MB/s each way\n",
                report.is_good() ? "pass" : "fail", report.names.size(), report.verdict.pairs,
                report.verdict.rounds, report.seconds, report.verdict.median_bytes_per_s / 1e6);
  return text + last.data();
}

int complain(const Error& error) {
  std::fprintf(stderr, "hpagent check network: %s\n", error.message.c_str());
  return kExitUnhealthy;
}

// Rank 0 is a node like the others, besides.
int run_first(const Options& options, const MemberOptions& member) {
  ::umask(0077);  // the file by which they meet has the secret
  const std::string directory = options.meeting.substr(0, options.meeting.rfind('/') + 1);
  if (!directory.empty()) {
    if (const auto made = make_directories(directory); !made.ok()) return complain(made.error());
  }
  // What it found is in its reports.
  std::thread own([&] { static_cast<void>(be_member(member)); });
  const auto report = coordinate({options.ranks, options.meeting, member.patience});
  own.join();
  if (!report.ok()) return complain(report.error());
  std::fputs((options.json ? to_json(*report) : to_text(*report)).c_str(), stdout);
  return report->is_good() ? kExitHealthy : kExitUnhealthy;
}

}  // namespace

int run_check_network(const std::vector<std::string>& arguments) {
  if (arguments == std::vector<std::string>{"--help"}) {
    return std::fputs(kHelp, stdout) < 0 ? 1 : 0;
  }
  const auto options = parse(arguments);
  if (!options) {
    std::fputs(
        "hpagent check network: start it with srun, one task per node, or with --rank, --ranks and "
        "--meeting; see hpagent check network --help\n",
        stderr);
    return kExitUsage;
  }
  const MemberOptions member{options->rank, options->name, options->meeting,
                             std::chrono::seconds(options->patience_s)};
  if (options->rank == 0) return run_first(*options, member);
  const Outcome took_part = be_member(member);
  return took_part.ok() ? kExitHealthy : complain(took_part.error());
}

}  // namespace hpctl::agent
