// SPDX-License-Identifier: Apache-2.0
// Lemon scores across jobs and controllers of a home.
#include "controller/publish/node_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/publish/lemon_metrics.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl {
namespace {

using core::FakeShell;

// A job of its own controller on the nodes n0 and n1, of which n1 is lost.
class Life {
 public:
  Life(const std::string& home, uint64_t job, bool ours = true)
      : paths_(HomePaths::of_job(home + "/jobs/" + std::to_string(job), JobId{job}, "n0")),
        history_(paths_, clock_, [ours] { return ours; }) {
    history_.load();
    core::JobSubmitted submitted{
        core::small_job("j" + std::to_string(job)), 1000, "", JobId{job}, {"n0", "n1"}};
    id_ = *shell_.feed(submitted).submitted;
    shell_.settle();
    shell_.progress(id_, 1);
  }
  void lose_n1() {
    shell_.feed(core::NodeLost{.job = id_,
                               .node = "n1",
                               .boot_id = shell_.node(id_, "n1").boot_id,
                               .cause = "no heartbeat",
                               .unreachable = true});
    for (int i = 0; i < 3; ++i) history_.observe(shell_.state, shell_.job(id_));
    EXPECT_TRUE(history_.stop().empty());
  }
  const NodeHistory& history() const { return history_; }

 private:
  FakeShell shell_;
  JobId id_;
  SystemClock clock_;
  HomePaths paths_;
  NodeHistory history_;
};

TEST(NodeHistory, JobsAddUpAndTheNextOneKnows) {
  const TemporaryDirectory home;
  {
    Life first(home.path(), 17);
    EXPECT_TRUE(first.history().scores().empty());
    first.lose_n1();
    EXPECT_FALSE(first.history().is_lemon("n1", "i-n1")) << "one job cannot tell";
    ASSERT_EQ(first.history().scores().size(), 1U);
    EXPECT_EQ(first.history().scores()[0].records, 1U) << "seen three times, said once";
  }
  {
    Life second(home.path(), 18);
    second.lose_n1();
    EXPECT_TRUE(second.history().is_lemon("n1", "i-n1"));
  }
  const Life third(home.path(), 19);
  EXPECT_TRUE(third.history().is_lemon("n1", "i-n1"));
  EXPECT_TRUE(third.history().is_lemon("n1", ""));
  EXPECT_FALSE(third.history().is_lemon("n0", "i-n0"));
  EXPECT_FALSE(third.history().is_lemon("n1", "i-another")) << "the instance was replaced";
}

TEST(NodeHistory, ASuccessorDoesNotRepeatWhatWasSaid) {
  const TemporaryDirectory home;
  Life(home.path(), 17).lose_n1();
  Life(home.path(), 17).lose_n1();
  EXPECT_EQ(NodeRecordFiles(home.path() + "/node-records").look().size(), 1U);
}

TEST(NodeHistory, WhoWasSucceededSaysNothing) {
  const TemporaryDirectory home;
  Life(home.path(), 17, false).lose_n1();
  EXPECT_TRUE(NodeRecordFiles(home.path() + "/node-records").look().empty());
}

TEST(NodeHistory, AHomeThatCannotBeWrittenStopsNobody) {
  const TemporaryDirectory home;
  ASSERT_TRUE(write_file_atomic(home / "node-records", "a file").ok());
  Life life(home.path(), 17);
  life.lose_n1();
  EXPECT_TRUE(life.history().scores().empty());
}

TEST(LemonMetrics, OfTheNodesOfLiveJobs) {
  LemonMetrics metrics;
  JobView view;
  view.job = 3;
  view.name = "a";
  view.nodes = {{"n0", "active", "up", "i-0", ""}, {"n1", "active", "up", "i-1", ""}};
  metrics.show(view, {{"n1", "i-1", 4, 2, "why"}, {"n7", "i-7", 9, 2, "why"}});
  MetricFamilies out;
  metrics.add_to(out);
  const std::vector<std::string> families = out.take();
  ASSERT_EQ(families.size(), 1U);
  EXPECT_TRUE(
      families[0].ends_with("gauge\nhpctl_node_lemon_score{job=\"3\",name=\"a\",node=\"n1\"} 4\n"))
      << families[0];
  view.ended_at = WallTime(1);
  metrics.show(view, {{"n1", "i-1", 4, 2, "why"}});
  metrics.add_to(out);
  EXPECT_TRUE(out.take().empty());
}

}  // namespace
}  // namespace hpctl
