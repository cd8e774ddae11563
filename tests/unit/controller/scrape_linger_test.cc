// SPDX-License-Identifier: Apache-2.0
// Who is waited for before a job's controller ends, and for how long.
#include "controller/publish/scrape_linger.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <thread>

#include "tests/support/hand_clock.h"

namespace hpctl {
namespace {

using Readers = ScrapeLinger::Readers;
using test::HandClock;

class LastLookTest : public ::testing::Test {
 protected:
  int64_t left(Readers readers = Readers::kScrapesOfFailure) const {
    return look_.left_ms(readers);
  }

  HandClock clock_;
  ScrapeLinger look_{clock_};
};

TEST_F(LastLookTest, NobodyIsWaitedForWhereNobodyScrapes) {
  EXPECT_EQ(left(), 0) << "nothing has ended";
  look_.shown(true);
  EXPECT_EQ(left(), 0);
  EXPECT_EQ(left(Readers::kScrapesAndCluster), ScrapeLinger::kLongestMs) << "the list of jobs";
}

TEST_F(LastLookTest, WhoScrapedIsWaitedFor) {
  look_.scraped();
  clock_.now_ms += ScrapeLinger::kRegularMs;
  look_.shown(true);
  EXPECT_EQ(left(), ScrapeLinger::kLongestMs);
  clock_.now_ms += 4'000;
  EXPECT_EQ(left(), ScrapeLinger::kLongestMs - 4'000);
  look_.shown(true);
  EXPECT_EQ(left(), ScrapeLinger::kLongestMs - 4'000) << "the first time counts";
  look_.scraped();
  EXPECT_EQ(left(), ScrapeLinger::kAnswerMs);
  clock_.now_ms += ScrapeLinger::kAnswerMs;
  EXPECT_EQ(left(), 0);
}

TEST_F(LastLookTest, WhoCeasedToScrapeIsNot) {
  look_.scraped();
  clock_.now_ms += ScrapeLinger::kRegularMs + 1;
  look_.shown(true);
  EXPECT_EQ(left(), 0);
}

TEST_F(LastLookTest, ItEndsWithoutThem) {
  look_.scraped();
  look_.shown(true);
  clock_.now_ms += ScrapeLinger::kLongestMs;
  EXPECT_EQ(left(), 0);
  EXPECT_EQ(left(Readers::kScrapesAndCluster), 0);
}

TEST_F(LastLookTest, NodesAreHeldOnlyForAFailure) {
  look_.scraped();
  look_.shown(false);
  EXPECT_EQ(left(), 0);
  EXPECT_EQ(left(Readers::kScrapesAndCluster), ScrapeLinger::kLongestMs);
  look_.listed();
  EXPECT_GT(left(Readers::kScrapesAndCluster), 0) << "there is a scrape to come";
  look_.scraped();
  clock_.now_ms += ScrapeLinger::kAnswerMs;
  EXPECT_EQ(left(Readers::kScrapesAndCluster), 0);
}

TEST_F(LastLookTest, AListBeforeTheEndDoesNotCount) {
  look_.listed();
  look_.shown(true);
  EXPECT_EQ(left(Readers::kScrapesAndCluster), ScrapeLinger::kLongestMs);
}

TEST_F(LastLookTest, AScrapeAndASignalEndTheWait) {
  const SystemClock clock;
  ScrapeLinger look(clock);
  const UniqueFd signal(::eventfd(0, EFD_CLOEXEC));
  look.scraped();
  look.shown(true);
  const int64_t begun_ms = clock.monotonic_ms();
  std::thread prometheus([&] { look.scraped(); });
  look.wait(signal.get(), Readers::kScrapesOfFailure);
  prometheus.join();
  ::eventfd_write(signal.get(), 1);
  look.wait(signal.get(), Readers::kScrapesAndCluster);
  EXPECT_LT(clock.monotonic_ms() - begun_ms, ScrapeLinger::kLongestMs);
}

}  // namespace
}  // namespace hpctl
