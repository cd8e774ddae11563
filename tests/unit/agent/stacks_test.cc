// SPDX-License-Identifier: Apache-2.0
// hpstacks with real processes that stand still in known places: what it writes, and that it leaves
// them as they were.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "agent/stacks/rank_stacks.h"
#include "common/base/file.h"
#include "common/job/stack_files.h"
#include "common/process/process_stat.h"
#include "common/recorder/dump.h"
#include "tests/support/program_output.h"
#include "tests/unit/agent/node_fixture.h"

using Counter = std::atomic<uint64_t>;

// Names that are looked for in what is written. They count, so that a test sees whether they run.
extern "C" {
[[gnu::noinline]] void hang_of_the_main_thread(Counter* counter) {
  for (;;) counter->fetch_add(1);
}
[[gnu::noinline]] void hang_of_the_other_thread(Counter* counter) {
  for (;;) {
    counter->fetch_add(1);
    ::poll(nullptr, 0, 1);
  }
}
}

namespace hpctl::stacks {
namespace {

using test::eventually;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Both threads of the child count here.
class HangingProcess {
 public:
  HangingProcess()
      : counters_(static_cast<Counter*>(
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    child_ = test::Child([counters = counters_] {
      std::thread other([counters] {
        ::pthread_setname_np(::pthread_self(), "other-thread");
        hang_of_the_other_thread(&counters[1]);
      });
      hang_of_the_main_thread(&counters[0]);
      return 0;
    });
    EXPECT_TRUE(runs());
  }
  ~HangingProcess() { ::munmap(counters_, 4096); }
  HangingProcess(const HangingProcess&) = delete;
  HangingProcess& operator=(const HangingProcess&) = delete;

  pid_t pid() const { return child_.pid(); }
  // Both threads go on from here.
  bool runs() const {
    const uint64_t first = counters_[0];
    const uint64_t second = counters_[1];
    return eventually([&] { return counters_[0] != first && counters_[1] != second; });
  }

 private:
  Counter* counters_;
  test::Child child_;
};

class Stacks : public ::testing::Test {
 protected:
  ProgramOutput take(uint64_t generation, const std::string& ranks) const {
    return run_program(environment_ + test::product_program("hpstacks") + " " + directory_ + " " +
                       std::to_string(generation) + " " + ranks + " 2>&1");
  }
  std::string written(const std::string& name) const {
    return test::text_of(directory_ + "/" + name);
  }

  test::TemporaryHome home_;
  const std::string directory_ = home_.path() + "/stacks";
  std::string environment_;  // of hpstacks, before its name
};

std::string of(int rank, pid_t pid) { return std::to_string(rank) + ":" + std::to_string(pid); }

TEST_F(Stacks, EveryThreadsPlaceIsWrittenAndTheProcessesGoOn) {
  const HangingProcess first;
  const HangingProcess second;
  const ProgramOutput output = take(3, of(1, first.pid()) + " " + of(12, second.pid()));
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("rank 1 in "));
  EXPECT_THAT(output.text, HasSubstr("rank 12 in "));
  EXPECT_THAT(output.text, HasSubstr("hang_of_the_main_thread"));
  for (const char* name : {"g3-rank0001.txt", "g3-rank0012.txt"}) {
    const std::string text = written(name);
    EXPECT_THAT(text, HasSubstr("hang_of_the_main_thread (stacks_test)"));
    EXPECT_THAT(text, HasSubstr("hang_of_the_other_thread (stacks_test)"));
    EXPECT_THAT(text, HasSubstr("\"other-thread\": "));
    EXPECT_THAT(text, HasSubstr("\n  #0 "));
  }
  EXPECT_TRUE(first.runs());
  EXPECT_TRUE(second.runs());
}

TEST_F(Stacks, AStoppedProcessStaysStoppedAndCanGoOn) {
  const HangingProcess process;
  ASSERT_EQ(::kill(process.pid(), SIGSTOP), 0);
  const auto is_stopped = [&] { return process_stat(process.pid(), kStateField) == "T"; };
  ASSERT_TRUE(eventually(is_stopped));
  EXPECT_EQ(take(1, of(0, process.pid())).status, 0);
  EXPECT_THAT(written("g1-rank0000.txt"), HasSubstr("hang_of_the_main_thread"));
  EXPECT_TRUE(eventually(is_stopped));
  ASSERT_EQ(::kill(process.pid(), SIGCONT), 0);
  EXPECT_TRUE(process.runs());
}

// A tracer in the way is refused to everybody, root included, as Yama refuses.
TEST_F(Stacks, WhatMayNotBeTracedIsNamedWithTheRemedy) {
  const HangingProcess process;
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, process.pid(), nullptr, nullptr), 0);
  EXPECT_EQ(take(1, of(0, process.pid())).status, 0);
  const std::string text = written("g1-rank0000.txt");
  EXPECT_THAT(text, HasSubstr("cannot be traced: Operation not permitted"));
  EXPECT_THAT(text, HasSubstr("ptrace_scope"));
  EXPECT_THAT(text, HasSubstr("\"other-thread\": ")) << "what the kernel tells is told";
  EXPECT_THAT(text, Not(HasSubstr("#0")));
  EXPECT_TRUE(process.runs());
}

TEST_F(Stacks, AProcessThatIsGoneIsSaidToBe) {
  test::Child child([] { return 0; });
  const pid_t pid = child.pid();
  ASSERT_EQ(child.wait_for_end(), 0);
  const ProgramOutput output = take(1, of(0, pid));
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("is gone"));
  EXPECT_THAT(written("g1-rank0000.txt"), HasSubstr("is gone"));
}

// A job file often names a shell, which starts the program.
TEST_F(Stacks, TheProgramThatAShellStartedIsSeen) {
  test::Child shell([] {
    const HangingProcess program;
    ::pause();
    return 0;
  });
  const std::string pid = std::to_string(shell.pid());
  const std::string children = "/proc/" + pid + "/task/" + pid + "/children";
  ASSERT_TRUE(eventually([&] { return !test::text_of(children).empty(); }));
  ASSERT_TRUE(eventually([&] {
    EXPECT_EQ(take(1, of(0, shell.pid())).status, 0);
    return written("g1-rank0000.txt").find("hang_of_the_main_thread") != std::string::npos;
  }));
  EXPECT_THAT(written("g1-rank0000.txt"), HasSubstr("its child process "));
}

TEST_F(Stacks, OnlyTheNewestHangsAreKept) {
  const HangingProcess process;
  for (int generation = 8; generation <= 12; ++generation) {
    take(static_cast<uint64_t>(generation), of(0, process.pid()) + " " + of(1, process.pid()));
  }
  EXPECT_THAT(
      *list_directory(directory_),
      ElementsAre("g10-rank0000.txt", "g10-rank0001.txt", "g11-rank0000.txt", "g11-rank0001.txt",
                  "g12-rank0000.txt", "g12-rank0001.txt", "g9-rank0000.txt", "g9-rank0001.txt"));
}

TEST_F(Stacks, ADirectoryThatCannotBeWrittenIsNamed) {
  ASSERT_TRUE(write_file_atomic(directory_, "a file").ok());
  const HangingProcess process;
  const ProgramOutput output = take(1, of(0, process.pid()));
  EXPECT_EQ(output.status, 1);
  EXPECT_THAT(output.text, HasSubstr(directory_));
  EXPECT_TRUE(process.runs());
}

// Of a process with a recorder: rank 3 of 4, which waits for the others in its first collective.
class Recorder : public Stacks {
 protected:
  pid_t start(const std::string& variables) {
    const std::string command =
        "exec env RANK=3 WORLD_SIZE=4 TORCH_NCCL_DEBUG_INFO_TEMP_FILE=" + dump_prefix_ + " " +
        variables + " /usr/bin/python3 " HPCTL_SOURCE "/tests/support/flight_recorder.py " +
        home_.path();
    process_ = test::Child([command] {
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      return 1;
    });
    EXPECT_TRUE(eventually([&] { return is_accessible(home_.path() + "/life0-step1-rank3"); }));
    return process_.pid();
  }
  std::string with_pipe() const { return "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" + home_.path() + "/p"; }
  std::string copy() const { return written("g1-recorder-0003"); }

  const std::string dump_prefix_ = home_.path() + "/dump";

 private:
  test::Child process_;
};

TEST_F(Recorder, ItsDumpIsAskedForAndTakenWhole) {
  const pid_t pid = start(with_pipe());
  environment_ = "HPCTL_STACKS_LIMIT=60000 ";  // also on a machine that is busy
  const ProgramOutput output = take(1, of(3, pid));
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_TRUE(output.text.starts_with(kRecordersAreAsked)) << output.text;
  EXPECT_TRUE(output.text.ends_with("\nflight recorders of rank 3\n")) << output.text;
  const auto dump = recorder::read_dump(copy());
  ASSERT_TRUE(dump.ok()) << dump.error().message;
  ASSERT_EQ(dump->operations.size(), 1U);
  EXPECT_EQ(dump->operations[0].caller, "flight_recorder.py:142 in step");
  EXPECT_EQ(copy(), test::text_of(dump_prefix_ + "3"));
}

// A stopped process does not answer, and what it dumped before says nothing of now.
TEST_F(Recorder, OneThatDoesNotAnswerIsNotWaitedForForever) {
  const pid_t pid = start(with_pipe() + " DUMP_AT_START=1");
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  ASSERT_TRUE(eventually([&] { return process_stat(pid, kStateField) == "T"; }));
  const ProgramOutput output = take(1, of(3, pid));
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("rank 3's flight recorder did not answer"));
  EXPECT_THAT(output.text, HasSubstr("\nrank 3 in ")) << "its stacks are told";
  EXPECT_THAT(*list_directory(directory_), ElementsAre("g1-rank0003.txt"));
}

// As after a timeout of PyTorch's own.
TEST_F(Recorder, ADumpThatIsThereIsTakenIfTheProcessItselfWroteIt) {
  const pid_t pid = start("DUMP_AT_START=1");
  ProgramOutput output = take(1, of(3, pid));
  EXPECT_THAT(output.text, Not(HasSubstr("asked")));
  EXPECT_EQ(copy(), test::text_of(dump_prefix_ + "3"));
  // One of a former life, or of another job.
  std::filesystem::last_write_time(
      dump_prefix_ + "3", std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  output = take(2, of(3, pid));
  EXPECT_EQ(output.status, 0);
  EXPECT_FALSE(is_accessible(directory_ + "/g2-recorder-0003"));
}

TEST_F(Recorder, WhatIsNoPipeAndNoFileDoesNotHoldItUp) {
  const pid_t pid = start("DUMP_AT_START=1 TORCH_FR_DUMP_TEMP_FILE=" + home_.path() +
                          "/fifo TORCH_NCCL_DEBUG_INFO_PIPE_FILE=");
  ASSERT_EQ(::mkfifo((home_.path() + "/fifo3").c_str(), 0600), 0);
  EXPECT_THAT(take(1, of(3, pid)).text, HasSubstr("flight recorders of rank 3"))
      << "the other variable names one that is whole";
  ASSERT_TRUE(write_file_atomic(dump_prefix_ + "3", "no dump").ok());
  const ProgramOutput output = take(2, of(3, pid));
  EXPECT_EQ(output.status, 0);
  EXPECT_THAT(output.text, Not(HasSubstr("flight")));
}

RankStacks rank_with(std::vector<Frame> frames) {
  ProcessStacks process{10, {}, {{{10, "main", "S, in do_poll"}, std::move(frames), ""}}};
  return {2, 3, {std::move(process)}};
}

TEST(RankStacks, TheTellingFrameIsWhoWaitsAndForWhat) {
  EXPECT_EQ(telling_frame(rank_with({{"poll", "libc.so.6", true},
                                     {"0x12", "libx.so", false},
                                     {"x::(anonymous namespace)::recv(int*)", "libx.so", true},
                                     {"main", "prog", true}})),
            "poll (libc.so.6) < x::(anonymous namespace)::recv (libx.so)");
  EXPECT_EQ(telling_frame(rank_with({{"spin(int)", "prog", true}, {"main", "prog", true}})),
            "spin (prog)");
  EXPECT_EQ(telling_frame(rank_with({{"0x12", "prog", false}})), "0x12 (prog)");
  EXPECT_EQ(telling_frame(rank_with({})), "state S, in do_poll");
}

TEST(RankStacks, ThreadsAtTheSamePlaceAreToldTogetherAndTheFileIsBounded) {
  RankStacks rank = rank_with({{"main", "prog", true}});
  auto& threads = rank.processes[0].threads;
  for (int i = 0; i < 2; ++i) {
    threads.push_back({{11 + i, "pool", "S"}, {{"wait", "prog", true}}, ""});
  }
  EXPECT_THAT(to_text(rank, 0),
              HasSubstr("thread 11 \"pool\": S\nthread 12 \"pool\": S\n  #0 wait (prog)\n"));
  for (int i = 0; i < 3000; ++i) {
    threads.push_back({{13 + i, "t", "S"}, {{std::string(400, 'x'), std::to_string(i), true}}, ""});
  }
  const std::string text = to_text(rank, 0);
  EXPECT_LT(text.size(), kMostFileBytes + 100);
  EXPECT_THAT(text.substr(text.size() - 20), HasSubstr("cut off here\n"));
}

}  // namespace
}  // namespace hpctl::stacks
