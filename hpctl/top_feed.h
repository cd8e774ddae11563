// SPDX-License-Identifier: Apache-2.0
// What `hpctl top` shows, asked for once a second on a thread of its own: who is asked may need
// seconds for an answer, and keys do not wait for that.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "hpctl/top_model.h"

namespace hpctl {

// One question, here and now. `job`: an id or a name, nullopt = the list; `everywhere` as
// list_everywhere(). What came goes into the model, an error as its trouble as well.
Outcome ask_once(TopModel& model, const std::optional<std::string>& job, bool everywhere);

class TopFeed {
 public:
  explicit TopFeed(bool everywhere);
  ~TopFeed();  // as stop(), and waits for what is under way
  TopFeed(const TopFeed&) = delete;
  TopFeed& operator=(const TopFeed&) = delete;

  // Readable when there is something to take.
  int fd() const;
  // What is to be asked about from now on: at once, and then every second.
  void look_at(const std::optional<std::string>& job);
  // The newest answer, if there is one that was not taken.
  void take(TopModel& model);
  // No more questions. False: one is under way and was given a second. Who will not wait for it
  // ends the process without destructors.
  bool stop();

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace hpctl
