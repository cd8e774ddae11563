// SPDX-License-Identifier: Apache-2.0
// The data of the status page, as JSON: the jobs that a uid may see, and for one job its state,
// nodes, ranks, events, timeline, the chain of causes, and what its files have (page_files.h). The
// values are the same as in `hpctl status`, `events`, `why` and `goodput`; lists of nodes and ranks
// are arrays without names, because a job may have very many (docs/status-page.md has the fields).
//
// Any thread but the owner's, for which it waits at most kPatience; that thread only takes the
// snapshot, and the caller makes the JSON. Errors: kNotFound (or a job that the uid may not see),
// kInvalidArgument, kUnavailable.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/node_record.h"
#include "common/watch/finding.h"
#include "controller/agents/progress.h"
#include "controller/api/event_feed.h"
#include "controller/engine/owner_loop.h"
#include "controller/page/page_files.h"
#include "controller/page/page_history.h"
#include "controller/page/page_server.h"
#include "controller/page/rank_times.h"
#include "controller/publish/status_files.h"

namespace hpctl {

class PageAnswers {
 public:
  static constexpr std::chrono::seconds kPatience{5};
  static constexpr int64_t kMostEvents = 500;  // in one answer; the newest

  PageAnswers(const HomePaths& paths, OwnerLoop& loop, EventFeed& feed, ProgressTable& progress,
              std::string node, std::string version)
      : files_(paths),
        loop_(loop),
        feed_(feed),
        progress_(progress),
        node_(std::move(node)),
        version_(std::move(version)) {}

  Result<std::string> answer(uint32_t uid, const PageServer::Request& request);

  // Owner thread: the job as it is shown to everybody else, and what is found of it.
  // `lemons`: what jobs say against machines, of all that are known.
  void sample(const JobView& view, const JobProgress& progress, const std::vector<Finding>& found,
              const std::vector<LemonScore>& lemons, int64_t wall_ms);

  // Waits at most that long for what reads files; the lanes that still hang then.
  std::vector<std::string> stop(std::chrono::milliseconds patience) {
    return files_.stop(patience);
  }

 private:
  Result<std::string> jobs(uint32_t uid);
  // `job` is an id in digits.
  Result<std::string> job(uint32_t uid, const std::string& job);
  // After that seq; with the chain of causes of the present state.
  Result<std::string> events(uint32_t uid, const std::string& job, uint64_t after_seq);
  Result<std::string> series(uint32_t uid, const PageServer::Request& request);
  Result<std::string> log(uint32_t uid, const PageServer::Request& request);
  // The times of steps, rank by rank.
  Result<std::string> heat(uint32_t uid, const std::string& job);
  // The job file and the checkpoints.
  Result<std::string> files(uint32_t uid, const std::string& job);
  // From the state, on the owner thread.
  template <typename T>
  using Look = std::function<Result<T>(const core::State& state)>;
  template <typename T>
  Result<T> ask(Look<T> look);
  Result<JobId> find(uint32_t uid, const std::string& job);
  std::vector<Finding> found_of(JobId job) const;  // owner thread

  PageFiles files_;
  OwnerLoop& loop_;
  EventFeed& feed_;
  ProgressTable& progress_;
  const std::string node_;
  const std::string version_;
  // The owner thread's:
  PageHistory history_;
  RankTimes rank_times_;
  std::map<JobId, std::vector<Finding>> found_;  // where there is something
  std::vector<LemonScore> lemons_;
};

}  // namespace hpctl
