// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/network/check_network.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <thread>

#include "agent/nodecheck/network/coordinator.h"
#include "agent/nodecheck/network/fabric_transfer.h"
#include "agent/nodecheck/network/gpu_rank.h"
#include "agent/nodecheck/network/member.h"
#include "agent/nodecheck/probes/exit_codes.h"
#include "common/base/file.h"
#include "common/base/host.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/job/paths.h"

namespace hpctl::agent {
namespace {

constexpr char kHelp[] =
    R"(usage: srun --ntasks-per-node=1 [-N NODES] [--gpus-per-node=G] hpagent check network
                      [--over auto|tcp|nccl|fabric] [--json]
       hpagent check network --rank R --ranks N --meeting FILE [--name NAME] [--over ...] [--json]

Names the nodes and the links between nodes that are slow or dead. Pairs of nodes exchange as much
as they can for 0.4 s, all pairs at once, in about log2(nodes) rounds; what was bad is tried again
before it is named. Slow is less than half of the median. Rank 0 prints the verdict. Nothing is
changed; the network is busy for some seconds.

  --over auto
              nccl where any of the nodes can, else fabric where any has EFA devices, else tcp
  --over tcp  the network of the nodes' addresses (the default route). EFA devices are looked at by
              hpagent check efa
  --over nccl all-reduces between the GPUs of the two nodes, by the NCCL that the loader finds
              (libnccl.so.2), in a process for each GPU that is ended when it hangs. Sums that are
              wrong name their nodes, however fast they came. A node whose NCCL fell back to TCP
              sockets although it has EFA devices, or that uses another network than most, is named
              with what to do. A node without NCCL or a GPU is named and takes no part
  --over fabric
              messages over libfabric, without GPUs: by every EFA device of the two nodes at once,
              or, where libfabric chooses another provider, by the node's address. The receiver
              compares the data with what was sent. A pair is as fast as its slowest device. A node
              with EFA devices whose libfabric chose another provider is named as one that fell
              back. Nodes of another provider than most take no part

A node whose wall clock is a second or more from the others' gets a warning.

A fault of the path between two nodes that are sound otherwise is found where no more than one bit
of their numbers differs; bad nodes are always found.

  --json      {"verdict", "rounds", "pairs", "seconds", "median_bytes_per_s", "way", "by",
              "nodes": [{"name", "state", "share"}],
              "links": [{"names", "state", "share", "sure", "trouble"}],
              "unable": {NAME: WHY}, "fallbacks": {NAME: WHY}, "clocks": {NAME: SECONDS},
              "absent": [RANK]}: state is slow, dead or wrong (data); share is the speed over the
              median; sure is false if it may also be either node. bytes_per_s: with nccl the bus
              bandwidth as nccl-tests defines it, with fabric the slowest device's, times the
              number of devices. clocks: those a second or more from the others', and how much they
              are ahead
  --rank R, --ranks N, --name NAME
              without Slurm: number of this process, of how many, and what its node is called
  --meeting FILE
              by which the processes find each other; on a file system that all see. With srun it is
              in HPCTL_HOME
  --patience SECONDS
              for all processes to come, 1 to 3600 (60)

Exit codes: 0 all is well, 1 something is slow, dead, wrong, fell back or is absent, or this process
could not take part, 2 wrong usage.
)";

struct Options {
  int rank = -1;
  int ranks = 0;
  std::string name;
  std::string meeting;
  int patience_s = 60;
  std::optional<NetworkWay> way;  // nullopt = auto
  bool json = false;
};

int number_of(const char* text) { return text == nullptr ? -1 : std::atoi(text); }

// srun's settings for its tasks.
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
    } else if (word == "--over") {
      options.way = from_word<NetworkWay>(value);
      if (!options.way && value != "auto") return std::nullopt;
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
constexpr const char* kWrong = "wrong";

std::string share_text(bool dead, double share) {
  if (dead) return "dead: it carries nothing";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "slow: it carries %.0f %% of the median", 100 * share);
  return text.data();
}

// A report with what its numbers of nodes mean.
class Printed {
 public:
  explicit Printed(const NetworkReport& report) : report_(report) {}

  std::string json() const {
    nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
    for (const auto& node : report_.verdict.nodes) {
      nodes.push_back(
          {{"name", name(node.node)}, {"state", state_of(node.dead)}, {"share", node.share}});
    }
    for (const int32_t node : report_.verdict.wrong.nodes) {
      nodes.push_back({{"name", name(node)}, {"state", kWrong}});
    }
    nlohmann::ordered_json links = nlohmann::ordered_json::array();
    for (const auto& link : report_.verdict.links) {
      links.push_back({{"names", {name(link.pair.a), name(link.pair.b)}},
                       {"state", state_of(link.dead)},
                       {"share", link.share},
                       {"sure", !link.blames_nobody},
                       {"trouble", trouble(link.pair)}});
    }
    for (const NodePair& pair : report_.verdict.wrong.pairs) {
      links.push_back({{"names", {name(pair.a), name(pair.b)}},
                       {"state", kWrong},
                       {"sure", false},
                       {"trouble", trouble(pair)}});
    }
    return json_text(
               nlohmann::ordered_json{{"verdict", report_.is_good() ? "pass" : "fail"},
                                      {"rounds", report_.verdict.rounds},
                                      {"pairs", report_.verdict.pairs},
                                      {"seconds", report_.seconds},
                                      {"median_bytes_per_s", report_.verdict.median_bytes_per_s},
                                      {"way", to_word(report_.way)},
                                      {"by", report_.by},
                                      {"nodes", std::move(nodes)},
                                      {"links", std::move(links)},
                                      {"unable", report_.unable},
                                      {"fallbacks", report_.fallbacks},
                                      {"clocks", clocks()},
                                      {"absent", report_.absent}}) +
           "\n";
  }

  std::string text() const {
    std::string text;
    for (const int rank : report_.absent) {
      text += "fail  rank " + std::to_string(rank) + " did not come\n";
    }
    for (const auto& [node, why] : report_.unable) {
      text += "fail  node " + node + " cannot take part: " + why + "\n";
    }
    for (const auto& node : report_.verdict.nodes) {
      text += "fail  node " + name(node.node) + " is " + share_text(node.dead, node.share) +
              troubles_of(node.node) + "\n";
    }
    for (const auto& link : report_.verdict.links) {
      text += "fail  the link " + names(link.pair) + " is " + share_text(link.dead, link.share) +
              (link.blames_nobody ? ", or one of the two nodes is" : "") +
              in_brackets(trouble(link.pair)) + "\n";
    }
    text += wrong_text();
    for (const auto& [node, why] : report_.fallbacks) {
      text += "fail  node " + node + " fell back: " + why + "\n";
    }
    for (const auto& [node, seconds] : clocks()) {
      std::array<char, 64> far{};
      std::snprintf(far.data(), far.size(), "%.1f s %s", std::abs(seconds),
                    seconds > 0 ? "ahead of" : "behind");
      text += "warn  the clock of node " + node + " is " + far.data() +
              " the others': look whether chronyd or ntpd runs\n";
    }
    return text + last_line();
  }

 private:
  std::string name(int32_t index) const { return report_.names[static_cast<size_t>(index)]; }
  std::string names(const NodePair& pair) const { return name(pair.a) + " - " + name(pair.b); }
  std::string trouble(const NodePair& pair) const {
    const auto found = report_.troubles.find(pair);
    return found == report_.troubles.end() ? "" : found->second;
  }
  // The last error of a pair with it.
  std::string troubles_of(int32_t node) const {
    std::string found;
    for (const auto& [pair, words] : report_.troubles) {
      if (pair.a == node || pair.b == node) found = words;
    }
    return in_brackets(found);
  }
  // Seconds that are ahead.
  std::map<std::string, double> clocks() const {
    std::map<std::string, double> clocks;
    for (const auto& [node, ms] : report_.clocks_ahead_ms) {
      clocks[node] = static_cast<double>(ms) / 1e3;
    }
    return clocks;
  }
  static std::string in_brackets(const std::string& words) {
    return words.empty() ? "" : " (" + words + ")";
  }

  std::string wrong_text() const {
    std::string text;
    for (const int32_t node : report_.verdict.wrong.nodes) {
      text += "fail  node " + name(node) + " is wrong: data comes otherwise than it was sent" +
              troubles_of(node) + "\n";
    }
    for (const NodePair& pair : report_.verdict.wrong.pairs) {
      text += "fail  one of the nodes " + names(pair) +
              " is wrong: data comes otherwise than it was sent" + in_brackets(trouble(pair)) +
              "\n";
    }
    return text;
  }

  std::string last_line() const {
    std::array<char, 160> last{};
    std::snprintf(last.data(), last.size(),
                  "%s: %zu nodes, %zu pairs in %d rounds and %.1f s; median %.3g MB/s each way",
                  report_.is_good() ? "pass" : "fail", report_.names.size(), report_.verdict.pairs,
                  report_.verdict.rounds, report_.seconds,
                  report_.verdict.median_bytes_per_s / 1e6);
    return last.data() + (" over " + report_.by) + "\n";
  }

  const NetworkReport& report_;
};

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
  // Its results are in its reports.
  std::thread own([&] { static_cast<void>(be_member(member)); });
  const auto report = coordinate({options.ranks, options.meeting, member.patience, options.way});
  own.join();
  if (!report.ok()) return complain(report.error());
  const Printed printed(*report);
  std::fputs((options.json ? printed.json() : printed.text()).c_str(), stdout);
  return report->is_good() ? kExitHealthy : kExitUnhealthy;
}

}  // namespace

int run_check_network(const std::vector<std::string>& arguments, const NetworkMachine& machine) {
  if (arguments == std::vector<std::string>{"--help"}) {
    return std::fputs(kHelp, stdout) < 0 ? 1 : 0;
  }
  if (arguments.size() == 2 && arguments[0] == "--gpu") {
    return run_gpu_rank(number_of(arguments[1].c_str()));
  }
  if (arguments.size() == 4 && arguments[0] == "--fabric" && arguments[2] == "--dialled") {
    run_fabric_transfer(arguments[1], arguments[3] == "yes");
  }
  const auto options = parse(arguments);
  if (!options) {
    std::fputs(
        "hpagent check network: start it with srun, one task per node, or with --rank, --ranks and "
        "--meeting; see hpagent check network --help\n",
        stderr);
    return kExitUsage;
  }
  const MemberOptions member{options->rank,
                             options->name,
                             options->meeting,
                             machine.program,
                             machine.efa_devices,
                             options->way,
                             std::chrono::seconds(options->patience_s)};
  if (options->rank == 0) return run_first(*options, member);
  const Outcome took_part = be_member(member);
  return took_part.ok() ? kExitHealthy : complain(took_part.error());
}

}  // namespace hpctl::agent
