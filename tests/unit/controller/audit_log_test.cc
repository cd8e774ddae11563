// SPDX-License-Identifier: Apache-2.0
// The audit log: what its lines say, who may read it, and that nobody can fill or bend it.
#include "controller/publish/audit_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "common/base/file.h"
#include "common/base/json.h"
#include "controller/publish/refusal_limit.h"
#include "tests/support/hand_clock.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

AuditEntry an_order() {
  AuditEntry entry;
  entry.call = "QuarantineNode";
  entry.uid = 0;
  entry.role = "operator";
  entry.from = "ipv4:10.0.0.7:4711";
  entry.job = 17;
  entry.arguments = " node=n1 reason=link flaps";
  entry.outcome = "OK";
  return entry;
}

AuditEntry a_refusal(const std::string& from) {
  AuditEntry entry;
  entry.call = "Cancel";
  entry.from = from;
  entry.outcome = "UNAUTHENTICATED";
  entry.why = "no token";
  entry.is_refused_call = true;
  return entry;
}

class AuditLogTest : public testing::Test {
 protected:
  AuditLogTest() { clock_.ahead_ms = 1'800'000'000'000; }
  std::string path() const { return directory_ / "nodes/n0/audit.jsonl"; }
  std::vector<json> lines(const std::string& path) const {
    std::vector<json> all;
    std::istringstream in(read_file(path).value());
    for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
    return all;
  }

  TemporaryDirectory directory_;
  test::HandClock clock_{1'000};
};

TEST_F(AuditLogTest, ALineSaysWhoDidWhatAndIsForTheOwnerOnly) {
  AuditLog log(directory_.path(), path(), false, clock_);
  log.record(an_order());
  AuditEntry bent = an_order();
  bent.arguments =
      std::string("reason=a\n{\"call\":\"Submit\"}\x1b[2J\xff") + std::string(5'000, 'x');
  log.record(bent);
  EXPECT_TRUE(log.stop().empty());
  const auto written = lines(path());
  ASSERT_EQ(written.size(), 2U) << "whatever is in it, a line is one line";
  EXPECT_EQ(written[0], json::parse(R"({"time":"2027-01-15T08:00:01.000Z","call":"QuarantineNode",
      "uid":0,"user":"root","role":"operator","from":"ipv4:10.0.0.7:4711","job":17,
      "arguments":"node=n1 reason=link flaps","outcome":"OK"})"));
  const auto text = read_file(path()).value();
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(text.size(), 2'000U);
  struct stat st {};
  ASSERT_EQ(::stat(path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600U);
}

TEST_F(AuditLogTest, IsContinuedAndNeverRewritten) {
  for (int i = 0; i < 3; ++i) {
    AuditLog log(directory_.path(), path(), false, clock_);
    log.record(an_order());
    EXPECT_TRUE(log.stop().empty());
  }
  EXPECT_EQ(lines(path()).size(), 3U);
}

TEST_F(AuditLogTest, GoneHomeIsNotMadeAgain) {
  const std::string home = directory_ / "job";
  AuditLog log(home, home + "/nodes/n0/audit.jsonl", false, clock_);
  log.record(an_order());
  EXPECT_TRUE(log.stop().empty());
  EXPECT_FALSE(is_accessible(home));
}

TEST_F(AuditLogTest, ALinkInItsPlaceIsNotFollowed) {
  ASSERT_TRUE(make_directories(directory_ / "nodes/n0").ok());
  const std::string victim = directory_ / "victim";
  ASSERT_TRUE(write_file_atomic(victim, "").ok());
  ASSERT_EQ(::symlink(victim.c_str(), path().c_str()), 0);
  AuditLog log(directory_.path(), path(), false, clock_);
  log.record(an_order());
  EXPECT_TRUE(log.stop().empty());
  EXPECT_EQ(read_file(victim).value(), "");
}

TEST_F(AuditLogTest, FilesAreBoundedInSizeAndNumber) {
  AuditEntry large = an_order();
  large.arguments = std::string(AuditLog::kMaxTextBytes, 'x');
  constexpr size_t kBatch = 50;
  constexpr size_t kFileBytes = 64U << 10;
  for (size_t bytes = 0; bytes < (AuditLog::kOlderFiles + 3) * kFileBytes;
       bytes += kBatch * AuditLog::kMaxTextBytes) {
    AuditLog log(directory_.path(), path(), false, clock_, kFileBytes);
    for (size_t i = 0; i < kBatch; ++i) log.record(large);
    EXPECT_TRUE(log.stop().empty());
  }
  const auto names = list_directory(directory_ / "nodes/n0").value();
  EXPECT_EQ(names.size(), AuditLog::kOlderFiles + 1U);
  for (const std::string& name : names) {
    struct stat st {};
    ASSERT_EQ(::stat((directory_ / "nodes/n0/" + name).c_str(), &st), 0);
    EXPECT_LE(static_cast<size_t>(st.st_size), kFileBytes) << name;
    EXPECT_EQ(st.st_mode & 07777, 0600U) << name;
  }
}

TEST_F(AuditLogTest, AFloodOfRefusalsIsCountedAndHidesNobody) {
  AuditLog log(directory_.path(), path(), false, clock_);
  for (int i = 0; i < 20'000; ++i) {
    log.record(a_refusal("ipv4:10.0.0.9:" + std::to_string(1'024 + i % 10'000)));
  }
  log.record(a_refusal("ipv4:10.0.0.8:1"));
  log.record(an_order());
  clock_.now_ms += RefusalLimit::kTellMs;
  log.tick();
  EXPECT_TRUE(log.stop().empty());
  const auto written = lines(path());
  ASSERT_EQ(written.size(), RefusalLimit::kAtOnce + 3U);
  EXPECT_EQ(written[RefusalLimit::kAtOnce].at("from"), "ipv4:10.0.0.8:1");
  EXPECT_EQ(written[RefusalLimit::kAtOnce + 1].at("call"), "QuarantineNode");
  const json& rest = written.back();
  EXPECT_EQ(rest.at("from"), "ipv4:10.0.0.9");
  EXPECT_EQ(rest.at("count"), 20'000 - RefusalLimit::kAtOnce);
  EXPECT_EQ(rest.at("outcome"), "REFUSED");
}

TEST(RefusalLimit, GivesOneASecondAndForgetsWhoIsQuiet) {
  RefusalLimit limit;
  int64_t now = 5'000;
  for (int i = 0; i < RefusalLimit::kAtOnce; ++i) EXPECT_TRUE(limit.takes("a", now));
  EXPECT_FALSE(limit.takes("a", now));
  EXPECT_TRUE(limit.takes("b", now)) << "each origin has its own";
  now += RefusalLimit::kEveryMs;
  EXPECT_TRUE(limit.takes("a", now));
  EXPECT_FALSE(limit.takes("a", now));
  EXPECT_TRUE(limit.take_counts(now).empty()) << "not due";
  const auto counts = limit.take_counts(now, true);
  ASSERT_EQ(counts.size(), 1U);
  EXPECT_EQ(counts[0].origin, "a");
  EXPECT_EQ(counts[0].refusals, 2U);
  EXPECT_TRUE(limit.take_counts(now, true).empty()) << "told once";
}

TEST(RefusalLimit, ManyOriginsShareOneAndTakeNoMemory) {
  RefusalLimit limit;
  size_t taken = 0;
  for (int i = 0; i < 10'000; ++i) taken += limit.takes("o" + std::to_string(i), 0) ? 1 : 0;
  EXPECT_EQ(taken, RefusalLimit::kMostOrigins + RefusalLimit::kAtOnce);
  const auto counts = limit.take_counts(0, true);
  ASSERT_EQ(counts.size(), 1U);
  EXPECT_EQ(counts[0].origin, RefusalLimit::kOthers);
  EXPECT_EQ(counts[0].refusals, 10'000 - taken);
  (void)limit.take_counts(60'000);
  EXPECT_TRUE(limit.takes("new", 60'000));
}

TEST_F(AuditLogTest, TheMachinesLogHearsItAtOnce) {
  ASSERT_TRUE(make_directories(directory_ / "dev").ok());
  const UniqueFd log_socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string at = directory_ / "dev/log";
  ASSERT_LT(at.size(), sizeof address.sun_path);
  std::copy(at.begin(), at.end(), address.sun_path);
  ASSERT_EQ(::bind(log_socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::setenv("HPCTL_SYSROOT", directory_.path().c_str(), 1);
  AuditLog log(directory_.path(), path(), true, clock_);
  log.record(an_order());
  std::string heard(4'096, '\0');
  const ssize_t n = ::recv(log_socket.get(), heard.data(), heard.size(), 0);
  ASSERT_GT(n, 0) << "before record() returned";
  heard.resize(static_cast<size_t>(n));
  EXPECT_THAT(heard, StartsWith("<85>"));
  EXPECT_THAT(heard, HasSubstr("hpcontroller[" + std::to_string(::getpid()) + "]: audit: {"));
  EXPECT_EQ(json::parse(heard.substr(heard.find('{'))).at("job"), 17);
  // Nobody reads there any more: the file has what does not fit.
  for (size_t i = 1; i < AuditLog::kMaxWaiting; ++i) log.record(an_order());
  ::unsetenv("HPCTL_SYSROOT");
  EXPECT_TRUE(log.stop().empty());
  EXPECT_EQ(lines(path()).size(), AuditLog::kMaxWaiting);
}

}  // namespace
}  // namespace hpctl
