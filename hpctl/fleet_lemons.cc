// SPDX-License-Identifier: Apache-2.0
#include "hpctl/fleet_lemons.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <vector>

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/rpc/cluster_client.h"
#include "hpctl/command_line.h"
#include "hpctl/exit_codes.h"
#include "hpctl/fleet.h"
#include "hpctl/lemons.h"

namespace hpctl {
namespace {

constexpr std::chrono::seconds kFleetTimeout{10};
constexpr size_t kMaxWords = 300;

// Each service knows its own jobs; the more of them spoke, the higher the score.
std::vector<v1::NodeLemon> highest_of(const std::vector<ClusterListing>& listings) {
  std::map<std::string, v1::NodeLemon> machines;
  for (const ClusterListing& listing : listings) {
    if (!listing.jobs.ok()) continue;
    for (const v1::NodeLemon& lemon : listing.jobs->lemons()) {
      v1::NodeLemon& known = machines[lemon.instance().empty() ? lemon.node() : lemon.instance()];
      if (known.node().empty() || lemon.score() > known.score()) known = lemon;
    }
  }
  std::vector<v1::NodeLemon> list;
  for (auto& [machine, lemon] : machines) list.push_back(std::move(lemon));
  std::stable_sort(list.begin(), list.end(), [](const v1::NodeLemon& a, const v1::NodeLemon& b) {
    return a.score() > b.score();
  });
  return list;
}

LemonScore score_of(const v1::NodeLemon& lemon) {
  return {printable_line(lemon.node(), kMaxWords), printable_line(lemon.instance(), kMaxWords),
          lemon.score(), lemon.records(), printable_line(lemon.reason(), kMaxWords)};
}

}  // namespace

int show_fleet_lemons(const Terminal& terminal, bool json) {
  const auto cluster = cluster_to_ask();
  if (!cluster.ok()) return report(terminal, cluster.error());
  const auto listings = list_fleet_lemons(*cluster, kFleetTimeout);
  bool is_told = false;
  for (const ClusterListing& listing : listings) {
    is_told = is_told || listing.jobs.ok();
    if (!listing.jobs.ok()) terminal.err << printable(listing.jobs.error().message) << "\n";
  }
  if (!is_told) return report(terminal, listings.back().jobs.error());
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  Table table({"NODE", "INSTANCE", "LEMON", "RECORDS", "USERS", "REASON"});
  const auto lemons = highest_of(listings);
  for (const v1::NodeLemon& lemon : lemons) {
    const LemonScore score = score_of(lemon);
    list.push_back({{"name", score.node}, {"instance_id", score.instance}});
    list.back().update(lemon_json(score));
    list.back()["users"] = lemon.users();
    list.back()["checked"] = lemon.checked();
    table.add({score.node, score.instance, lemon_text(score), std::to_string(score.records),
               std::to_string(lemon.users()),
               lemon.checked() && score.worst.empty() ? "a deep check failed" : score.worst},
              score.is_lemon() ? Colour::kRed : Colour::kNone);
  }
  if (json) {
    terminal.out << json_text(nlohmann::ordered_json{{"nodes", list}}) << "\n";
  } else if (lemons.empty()) {
    terminal.err << "no user's job speaks against any node\n";
  } else {
    table.print(terminal);
  }
  return kExitOk;
}

Outcome tell_cluster(const NodeCheckResult& result) {
  HP_TRY_ASSIGN(const std::string cluster, cluster_to_ask());
  v1::NodeJudgement judgement;
  judgement.set_node(result.node);
  judgement.set_instance(result.instance);
  judgement.set_passed(result.passed);
  judgement.set_reason(result.worst);
  return judge_node_at_each(cluster, std::move(judgement), kFleetTimeout);
}

}  // namespace hpctl
