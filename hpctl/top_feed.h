// SPDX-License-Identifier: Apache-2.0
// The data of `hpctl top`, requested once a second on a separate thread: an answer may need
// seconds, and keys do not wait for that.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "hpctl/top_model.h"

namespace hpctl {

// One query, here and now. `job`: an id or a name, nullopt = the list; `everywhere` as
// list_everywhere(). The answer goes into the model, and an error becomes its trouble.
Outcome ask_once(TopModel& model, const std::optional<std::string>& job, bool everywhere);

class TopFeed {
 public:
  explicit TopFeed(bool everywhere);
  ~TopFeed();  // as stop(), and waits for what is under way
  TopFeed(const TopFeed&) = delete;
  TopFeed& operator=(const TopFeed&) = delete;

  // Readable when there is something to take.
  int fd() const;
  // Selects the subject of the queries from now on: at once, and then every second.
  void look_at(const std::optional<TopSubject>& subject);
  // The newest answer, if there is one that was not taken.
  void take(TopModel& model);
  // Ends the queries. False: one is still running after a second. A caller that does not wait for
  // it ends the process without destructors.
  bool stop();

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace hpctl
