// SPDX-License-Identifier: Apache-2.0
// Readers of a job's history: where they begin, and what becomes of one that does not read.
#include "controller/api/event_feed.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>

#include "common/base/check.h"
#include "controller/api/event_cursor.h"
#include "controller/api/event_watcher.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

constexpr JobId kFollowedJob{7};
constexpr std::chrono::milliseconds kLook{20};
constexpr int kPatienceMs = 60'000;

class EventFeedTest : public ::testing::Test {
 protected:
  EventFeedTest() : feed_(open_reader(), kLook) {}

  // Entries 1 to `count`, each with so many bytes of text.
  void record(uint64_t count, size_t bytes) {
    std::vector<StoredEntry> entries;
    for (uint64_t i = 1; i <= count; ++i) {
      core::LogEntry entry;
      entry.seq = Seq{i};
      entry.type = "Told";
      entry.job = kFollowedJob;
      entry.cause = std::string(bytes, 'x');
      entries.push_back({0, 1, entry});
    }
    ASSERT_TRUE(store_->commit({}, {}, entries).ok());
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Store> store_;
  EventFeed feed_;

 private:
  std::unique_ptr<Store> open_reader() {
    auto owner = Store::open(directory_ / "db", Store::Mode::kOwner);
    auto reader = Store::open(directory_ / "db", Store::Mode::kReader);
    HP_CHECK(owner.ok() && reader.ok());
    store_ = std::move(*owner);
    return std::move(*reader);
  }
};

// It may be woken as soon as it has subscribed.
TEST_F(EventFeedTest, AReaderGetsNothingBeforeItsPlaceIsKnown) {
  record(9, 1);
  EventCursor cursor(feed_, kFollowedJob, true);
  EXPECT_FALSE(cursor.next()->has_value());
  EXPECT_FALSE(cursor.is_over());
  ASSERT_TRUE(cursor.start_after(Seq{7}).ok());
  EXPECT_EQ((*cursor.next())->entry.seq, Seq{8});
  EXPECT_EQ((*cursor.next())->entry.seq, Seq{9});
  EXPECT_FALSE(cursor.next()->has_value());
  EXPECT_FALSE(cursor.is_over()) << "the job goes on";
}

// With next to no patience.
class Watching final : public v1::Controller::CallbackService {
 public:
  explicit Watching(EventFeed& feed) : feed_(feed) {}
  grpc::ServerWriteReactor<v1::Event>* WatchEvents(grpc::CallbackServerContext* context,
                                                   const v1::WatchEventsRequest*) override {
    auto* const watcher = new EventWatcher(feed_, context, kFollowedJob, Seq{}, true, 1);
    has_begun = true;
    return watcher;
  }
  std::atomic<bool> has_begun{false};

 private:
  EventFeed& feed_;
};

TEST_F(EventFeedTest, AClientThatDoesNotReadIsCutOff) {
  record(64, 64U << 10);  // far more than gRPC and the kernel take for it
  Watching service(feed_);
  const std::string address = "unix:" + directory_ / "socket";
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const auto stub =
      v1::Controller::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto stream = stub->WatchEvents(&context, {});
  const auto goes_on = [&] { return !service.has_begun || feed_.subscribers() > 0; };
  for (int waited = 0; goes_on() && waited < kPatienceMs; ++waited) ::poll(nullptr, 0, 1);
  EXPECT_FALSE(goes_on());
  context.TryCancel();
  EXPECT_FALSE(stream->Finish().ok());
  server->Shutdown();
}

}  // namespace
}  // namespace hpctl
