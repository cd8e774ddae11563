// SPDX-License-Identifier: Apache-2.0
// The status page of the cluster controller: all of its jobs in one page, to each caller those that
// `hpctl ps -A` shows him (decision 1608). Any thread.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "controller/cluster/fleet_answers.h"
#include "controller/cluster/operator_acl.h"
#include "controller/page/status_page.h"

namespace hpctl::cluster {

class FleetPage {
 public:
  // `address` as of StatusPage; `clock` and what `jobs` and `lemons` use outlive this.
  FleetPage(FleetAnswers::Jobs jobs, FleetAnswers::Lemons lemons, Appointed appointed,
            std::string address, const Clock& clock, const std::string& node);

  // A link that counts once, for whom MUNGE has named. kUnavailable: it cannot listen.
  Result<std::string> link(uid_t uid, gid_t gid);
  // Waits for requests in hand; no link is given from then on.
  void stop() { page_.stop(); }

 private:
  bool sees_all(uid_t uid);

  const Appointed appointed_;
  std::mutex mutex_;
  std::map<uid_t, gid_t> groups_;  // primary ones, of those who have asked for a link
  FleetAnswers answers_;
  StatusPage page_;
};

}  // namespace hpctl::cluster
