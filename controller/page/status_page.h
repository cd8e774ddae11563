// SPDX-License-Identifier: Apache-2.0
// The status page of a controller, of a home's, a job's or a cluster's: sessions and the server,
// which listens from the first link on. Its owner makes the content. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "controller/page/page_access.h"
#include "controller/page/page_server.h"

namespace hpctl {

inline constexpr char kDefaultPageAddress[] = "127.0.0.1:0";

class StatusPage {
 public:
  // `answer` as of PageServer; what it uses and `clock` outlive this. `address`: HOST:PORT, "" =
  // the loopback address and any free port.
  StatusPage(PageServer::Answer answer, std::string address, const Clock& clock);

  // A link that counts once. kUnavailable: the address is not ours, or in use.
  Result<std::string> link(uint32_t uid);
  uint64_t requests() const;
  // Waits for requests in hand; no link is given from then on.
  void stop();

 private:
  const PageServer::Answer answer_;
  const std::string address_;
  PageAccess access_;
  mutable std::mutex mutex_;
  bool is_stopped_ = false;
  std::unique_ptr<PageServer> server_;
};

}  // namespace hpctl
