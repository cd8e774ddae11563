// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/fleet_page.h"

#include <unistd.h>

#include <utility>

namespace hpctl::cluster {

FleetPage::FleetPage(FleetAnswers::Jobs jobs, FleetAnswers::Lemons lemons, Appointed appointed,
                     std::string address, const Clock& clock, const std::string& node)
    : appointed_(std::move(appointed)),
      answers_(
          std::move(jobs), std::move(lemons), [this](uid_t uid) { return sees_all(uid); }, clock,
          node, HPCTL_VERSION),
      page_([this](uint32_t uid, const auto& request) { return answers_.answer(uid, request); },
            std::move(address), clock) {}

Result<std::string> FleetPage::link(uid_t uid, gid_t gid) {
  {
    const std::lock_guard lock(mutex_);
    groups_[uid] = gid;
  }
  return page_.link(uid);
}

// Asked for each request, so that who leaves a group that is appointed sees no more than his own.
bool FleetPage::sees_all(uid_t uid) {
  gid_t gid = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto known = groups_.find(uid);
    if (known == groups_.end()) return false;
    gid = known->second;
  }
  return role_of(appointed_, uid, gid, ::geteuid()) != Role::kUser;
}

}  // namespace hpctl::cluster
