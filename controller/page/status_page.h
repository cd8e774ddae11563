// SPDX-License-Identifier: Apache-2.0
// The status page of a controller: answers, sessions and the server, which listens from the first
// link on. Any thread, but sample() is the owner thread's.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "common/base/clock.h"
#include "controller/page/page_access.h"
#include "controller/page/page_answers.h"
#include "controller/page/page_server.h"

namespace hpctl {

inline constexpr char kDefaultPageAddress[] = "127.0.0.1:0";

class StatusPage {
 public:
  // Outlived by the loop, feed, table and clock.
  StatusPage(PageAnswers answers, std::string address, const Clock& clock);

  // A link that counts once. kUnavailable: the address is not ours, or in use.
  Result<std::string> link(uint32_t uid);
  void sample(const JobView& view, const std::vector<Finding>& found,
              const std::vector<LemonScore>& lemons, int64_t wall_ms) {
    answers_.sample(view, found, lemons, wall_ms);
  }
  uint64_t requests() const;
  // Waits for requests in hand; no link is given from then on.
  void stop();

 private:
  Result<std::string> answer(uint32_t uid, const PageServer::Request& request);

  PageAnswers answers_;
  const std::string address_;
  PageAccess access_;
  mutable std::mutex mutex_;
  bool is_stopped_ = false;
  std::unique_ptr<PageServer> server_;
};

}  // namespace hpctl
