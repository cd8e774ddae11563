// SPDX-License-Identifier: Apache-2.0
#include "controller/page/status_page.h"

#include <utility>

#include "common/base/log.h"

namespace hpctl {

StatusPage::StatusPage(PageServer::Answer answer, std::string address, const Clock& clock)
    : answer_(std::move(answer)),
      address_(address.empty() ? kDefaultPageAddress : std::move(address)),
      access_(clock) {}

Result<std::string> StatusPage::link(uint32_t uid) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return Error{ErrorCode::kUnavailable, "the controller is stopping"};
  if (!server_) {
    HP_TRY_ASSIGN(server_, PageServer::open(address_, access_, answer_));
    log_info("the status page is on " + server_->url());
  }
  HP_TRY_ASSIGN(const std::string code, access_.make_code(uid));
  return server_->url() + "/open?code=" + code;
}

uint64_t StatusPage::requests() const {
  const std::lock_guard lock(mutex_);
  return server_ ? server_->requests() : 0;
}

void StatusPage::stop() {
  std::unique_ptr<PageServer> server;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    server = std::move(server_);
  }
}

}  // namespace hpctl
