// SPDX-License-Identifier: Apache-2.0
// A node that reads again what a worker of another node called damaged, or the newest checkpoint
// before older ones are deleted.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "common/base/file.h"
#include "tests/unit/agent/node_under_test.h"
#include "tests/unit/checkpoint/synthetic_state.h"

namespace hpctl::agent {
namespace {

using test::AgentMessage;
using test::kJob;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kSound = 1;
constexpr uint32_t kDamaged = 2;
constexpr uint32_t kUnreadable = 3;
constexpr char kShard[] = "shard-00001.safetensors";

// The claim is about one shard of step-40.g3; generation 4 has the newest record.
class SecondReader : public ::testing::Test, public test::NodeUnderTest {
 protected:
  void SetUp() override {
    const auto saved = save_synthetic({directory_, {40, 3}, 2, 1, 2, {}});
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    ASSERT_TRUE(make_directories(directory_ + "/generations").ok());
    ASSERT_TRUE(write_file_atomic(record(), "{}").ok());
    connect();
  }
  std::string shard() const { return directory_ + "/step-40.g3/" + kShard; }
  std::string record() const { return directory_ + "/generations/4.json"; }
  v1::DamageAnswered ask(uint64_t seq, uint32_t limit_ms = 60'000) {
    v1::ConfirmDamage order = order_to_read();
    order.mutable_part()->set_file(kShard);
    order.set_words("words of the worker");
    order.set_limit_ms(limit_ms);
    return ask(seq, order);
  }
  v1::DamageAnswered verify(uint64_t seq, const std::string& depth) {
    v1::ConfirmDamage order = order_to_read();
    order.set_depth(depth);
    return ask(seq, order);
  }
  v1::ConfirmDamage order_to_read() const {
    v1::ConfirmDamage order;
    order.set_directory(directory_);
    order.set_checkpoint("step-40.g3");
    order.set_generation(4);
    order.set_limit_ms(60'000);
    return order;
  }
  v1::DamageAnswered ask(uint64_t seq, v1::ConfirmDamage order) {
    v1::ControllerMessage message;
    message.set_job(kJob.value);
    order.set_action_seq(seq);
    *message.mutable_confirm_damage() = order;
    controller_.send(message);
    const AgentMessage answer = controller_.take([seq](const AgentMessage& told) {
      return told.has_damage_answered() && told.damage_answered().action_seq() == seq;
    });
    EXPECT_EQ(answer.report_seq(), 0U) << "the order comes again with the next stream";
    return answer.damage_answered();
  }

  const std::string directory_ = home_.path() + "/ckpt";
};

TEST_F(SecondReader, VerdictIsOfTheBytesThatAreThere) {
  EXPECT_EQ(registration_.register_agent().capabilities().count("confirms_damage"), 1U);
  const v1::DamageAnswered sound = ask(1);
  EXPECT_EQ(sound.verdict(), kSound) << sound.what();
  EXPECT_THAT(sound.what(), IsEmpty());

  std::string bytes = read_file(shard()).value();
  bytes[bytes.size() - 3] = static_cast<char>(~bytes[bytes.size() - 3]);
  ASSERT_EQ(::unlink(shard().c_str()), 0);
  std::ofstream(shard(), std::ios::binary) << bytes;
  const v1::DamageAnswered damaged = ask(2);
  EXPECT_EQ(damaged.verdict(), kDamaged);
  EXPECT_THAT(damaged.what(), HasSubstr(kShard));

  ASSERT_EQ(::unlink(shard().c_str()), 0);
  const v1::DamageAnswered missing = ask(3);
  EXPECT_EQ(missing.verdict(), kDamaged);
  EXPECT_THAT(missing.what(), HasSubstr("it is missing"));
}

// A mount point whose file system is away misses every file.
TEST_F(SecondReader, DirectoryWithoutTheRecordProvesNothing) {
  ASSERT_EQ(::unlink(shard().c_str()), 0);
  ASSERT_EQ(::unlink(record().c_str()), 0);
  const v1::DamageAnswered answer = ask(1);
  EXPECT_EQ(answer.verdict(), kUnreadable);
  EXPECT_THAT(answer.what(), HasSubstr("generations/4.json is not there"));
}

TEST_F(SecondReader, FileThatCannotBeReadProvesNothing) {
  ASSERT_EQ(::unlink(shard().c_str()), 0);
  ASSERT_EQ(::symlink(shard().c_str(), shard().c_str()), 0);
  const v1::DamageAnswered answer = ask(1);
  EXPECT_EQ(answer.verdict(), kUnreadable);
  EXPECT_THAT(answer.what(), HasSubstr("Too many levels of symbolic links"));
}

// Before older checkpoints are deleted: as much as checkpoint.verify_before_delete says.
TEST_F(SecondReader, VerifiesAsDeepAsItIsTold) {
  EXPECT_EQ(verify(1, "sizes").verdict(), kSound);
  EXPECT_EQ(verify(2, "sample").verdict(), kSound);
  EXPECT_EQ(verify(3, "full").verdict(), kSound);
  const std::string first = directory_ + "/step-40.g3/shard-00000.safetensors";
  std::string bytes = read_file(first).value();
  bytes[9] = static_cast<char>(~bytes[9]);  // of the header: in no stored range
  ASSERT_TRUE(write_file_atomic(first, bytes).ok());
  EXPECT_EQ(verify(4, "sample").verdict(), kSound);
  const v1::DamageAnswered damaged = verify(5, "full");
  EXPECT_EQ(damaged.verdict(), kDamaged);
  EXPECT_THAT(damaged.what(), HasSubstr("shard-00000.safetensors"));
  ASSERT_EQ(::truncate(first.c_str(), 100), 0);
  EXPECT_EQ(verify(6, "sizes").verdict(), kDamaged);
  const v1::DamageAnswered unknown = verify(7, "of a newer release");
  EXPECT_EQ(unknown.verdict(), kUnreadable);
  EXPECT_THAT(unknown.what(), HasSubstr("does not know the depth"));
  ASSERT_EQ(::unlink(record().c_str()), 0);
  EXPECT_EQ(verify(8, "sizes").verdict(), kUnreadable) << "the directory may be away";
}

// In the mirror, or a path that the job resumes from: the job's newest record is not there.
TEST_F(SecondReader, CheckpointElsewhereIsJudgedByItsOwnPlace) {
  ASSERT_EQ(::unlink(record().c_str()), 0);
  v1::ConfirmDamage order = order_to_read();
  order.set_generation(0);
  EXPECT_EQ(ask(1, order).verdict(), kSound);
  ASSERT_EQ(::unlink(shard().c_str()), 0);
  EXPECT_EQ(ask(2, order).verdict(), kDamaged) << "its directory is there";
  ASSERT_TRUE(remove_tree(directory_ + "/step-40.g3").ok());
  EXPECT_EQ(ask(3, order).verdict(), kUnreadable) << "a mount may be away";
  ASSERT_TRUE(write_file_atomic(directory_ + "/generations/3.json", "{}").ok());
  EXPECT_EQ(ask(4, order).verdict(), kDamaged) << "the record of its generation is there";
}

TEST_F(SecondReader, RepeatedOrderHasTheSameAnswer) {
  EXPECT_EQ(ask(1).verdict(), kSound);
  ASSERT_EQ(::unlink(shard().c_str()), 0);
  EXPECT_EQ(ask(1).verdict(), kSound);
  kill_agent();
  EXPECT_EQ(ask(1).verdict(), kDamaged) << "the next agent reads itself";
}

// A FIFO that nobody opens for writing blocks its reader, as a file server does that does not
// answer. The agent's own thread goes on.
TEST_F(SecondReader, HungReadEndsWithTheLimit) {
  const std::string aside = shard() + ".aside";
  ASSERT_EQ(::rename(shard().c_str(), aside.c_str()), 0);
  ASSERT_EQ(::mkfifo(shard().c_str(), 0600), 0);
  const v1::DamageAnswered hung = ask(1, 500);
  EXPECT_EQ(hung.verdict(), kUnreadable);
  EXPECT_THAT(hung.what(), HasSubstr("no answer of the file server within 500 ms"));
  ASSERT_EQ(::rename(aside.c_str(), shard().c_str()), 0);
  EXPECT_EQ(ask(2).verdict(), kSound);
}

}  // namespace
}  // namespace hpctl::agent
