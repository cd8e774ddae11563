// SPDX-License-Identifier: Apache-2.0
#include "controller/page/status_page.h"

#include <charconv>
#include <utility>

#include "common/base/log.h"

namespace hpctl {

StatusPage::StatusPage(PageAnswers answers, std::string address, const Clock& clock)
    : answers_(std::move(answers)),
      address_(address.empty() ? kDefaultPageAddress : std::move(address)),
      access_(clock) {}

Result<std::string> StatusPage::link(uint32_t uid) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return Error{ErrorCode::kUnavailable, "the controller is stopping"};
  if (!server_) {
    HP_TRY_ASSIGN(server_,
                  PageServer::open(address_, access_, [this](uint32_t caller, const auto& request) {
                    return answer(caller, request);
                  }));
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

Result<std::string> StatusPage::answer(uint32_t uid, const PageServer::Request& request) {
  if (request.path == "/api/jobs") return answers_.jobs(uid);
  if (request.id.empty()) return Error{ErrorCode::kInvalidArgument, "which job? id=N"};
  if (request.path == "/api/job") return answers_.job(uid, request.id);
  uint64_t after = 0;
  const char* end = request.after.data() + request.after.size();
  const auto [read, error] = std::from_chars(request.after.data(), end, after);
  if (!request.after.empty() && (error != std::errc() || read != end)) {
    return Error{ErrorCode::kInvalidArgument, "after= wants the seq of an event"};
  }
  return answers_.events(uid, request.id, after);
}

}  // namespace hpctl
