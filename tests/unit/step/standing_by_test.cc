// SPDX-License-Identifier: Apache-2.0
// The Python that stands by for a task's program: real processes of both. A program says what it
// finds, in the life that the shim started and in the one that stood by.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <string>
#include <variant>

#include "agent/shim/task_standby.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/process/pidfd.h"
#include "tests/support/processes.h"
#include "tests/support/promise.h"
#include "tests/unit/step/supervision_fixture.h"

namespace hpctl::shim {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kPython = "/usr/bin/python3";

// Writes what it finds into life-GENERATION; what differs between any two lives is under "own".
// Tells a step once the file `step` is there, and stays.
constexpr const char* kProgram = R"(
import json, os, resource, signal, subprocess, sys, time, told

def lines(name):
    with open(f"/proc/self/{name}") as file:
        return file.readlines()

def signals():  # without the C library's own, from 32 on
    words = [line.split() for line in lines("status") if line.startswith("Sig")]
    return {name: int(mask, 16) & 0x7FFFFFFF for name, mask in words[1:]}

sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
changing = ("HPCTL_GENERATION", "HPCTL_WORKER", "HPCTL_PROGRESS_FILE", "MASTER_PORT",
            "SLURM_TASK_PID", "TORCHELASTIC_RESTART_COUNT")
found = {
    "argv": sys.argv, "file": __file__, "directory": os.getcwd(), "umask": os.umask(0o22),
    "parent": os.getppid(), "group": os.getpgrp(), "session": os.getsid(0),
    "environment": {k: v for k, v in os.environ.items() if k not in changing},
    "descriptors": {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                    if os.path.exists(f"/proc/self/fd/{fd}")},
    "signals": signals(),
    "handlers": [str(signal.getsignal(s)) for s in (1, 2, 3, 10, 12, 15)],
    "limits": lines("limits"), "cgroup": lines("cgroup"), "score": lines("oom_score_adj"),
    "policies": {os.sched_getscheduler(int(t)) for t in os.listdir("/proc/self/task")} ==
                {os.SCHED_OTHER},
    "nice": os.nice(0), "processors": sorted(os.sched_getaffinity(0)),
    "streams": [(s.isatty(), s.line_buffering, s.encoding, s.errors)
                for s in (sys.stdin, sys.stdout, sys.stderr)],
    "own": {"pid": os.getpid(), "sleeper": sleeper.pid, "marks": told.MARK,
            **{name: os.environ.get(name) for name in changing}},
}
with open(f"life.{found['own']['HPCTL_GENERATION']}.part", "w") as file:
    json.dump(found, file)
print("printed by", found["own"]["HPCTL_GENERATION"], flush=True)
os.rename(file.name, file.name[:-5])
while not os.path.exists("step"):
    time.sleep(0.005)
with open(os.environ["HPCTL_PROGRESS_FILE"], "w") as file:
    print(1, file=file)
while True:
    time.sleep(1000)
)";

// Says that it is imported, and when the text that imports it has told that it is ready.
constexpr const char* kTold = R"(
import os, socket
MARK = os.environ["HPCTL_WORKER"]
send = socket.socket.send

def say_and_write(*arguments):
    sent = send(*arguments)
    open(f"waits.{os.getpid()}", "w").close()
    return sent

socket.socket.send = say_and_write
print("printed by told", flush=True)
)";

class StandingByTest : public SupervisionFixture {
 protected:
  void SetUp() override {
    put("program.py", kProgram);
    put("told.py", kTold);
    output_.reset(
        ::open((directory_ / "output").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
    settings_.standby_imports = "told";
    settings_.standby_times.answer_ms = kPatienceMs;
    std::filesystem::current_path(directory_.path());
    ASSERT_EQ(::setenv("SLURM_TASK_PID", "1", 1), 0);
    ASSERT_EQ(::unsetenv("PYTHONUNBUFFERED"), 0);  // else no stream has lines
  }
  void TearDown() override {
    end_shim();
    // What the last program had started: a shim that was killed ends nothing but its children.
    end_processes_of(1);
    end_processes_of(2);
    ::unsetenv("SLURM_TASK_PID");
    std::filesystem::current_path(before_);
  }
  void put(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(write_file_atomic(directory_ / name, text).ok());
  }
  std::string text_of(const std::string& name) const {
    const auto text = read_file(directory_ / name);
    return text.ok() ? *text : "";
  }
  static void await(const std::string& what, const std::function<bool()>& condition) {
    for (int waited = 0; !condition(); ++waited) {
      ASSERT_LT(waited, kPatienceMs) << what;
      ::poll(nullptr, 0, 1);
    }
  }
  void start_python() { start_program({kPython, "program.py", "--lr", "1"}); }
  pid_t started() {
    for (auto said = next(); said; said = next()) {
      if (const auto* start = std::get_if<step::Started>(&*said)) {
        return static_cast<pid_t>(start->pid);
      }
    }
    ADD_FAILURE() << "the shim says nothing more: " << text_of("output");
    return -1;
  }
  json life(int generation) {
    const std::string name = "life." + std::to_string(generation);
    await(name, [&] { return is_accessible(directory_ / name); });
    return json::parse(text_of(name));
  }
  void end_processes_of(int generation) const {
    const std::string text = text_of("life." + std::to_string(generation));
    if (!text.empty()) kill_process(json::parse(text)["own"]["sleeper"]);
  }
  // Those of kTold that wait, by the files that they write: each once.
  std::vector<pid_t> waited() const {
    std::vector<pid_t> pids;
    for (const std::string& name : list_directory(directory_.path()).value()) {
      if (name.starts_with("waits.")) pids.push_back(std::stoi(name.substr(6)));
    }
    return pids;
  }
  pid_t await_standby() {
    await("a standby", [&] { return !waited().empty(); });
    return waited().front();
  }
  void stop(uint64_t generation) {
    say(step::Stop{generation, 1'000});
    for (auto said = next(); said; said = next()) {
      if (std::holds_alternative<step::Stopped>(*said)) return;
    }
    ADD_FAILURE() << "the shim says nothing more";
  }
  pid_t restart() {
    stop(1);
    step::Start order;
    order.generation = 2;
    order.restart_count = 1;
    order.run_id = "supervision-test";
    say(order);
    return started();
  }
  // A process with a step told, and the one that stands by then.
  pid_t start_and_step() {
    start_python();
    started();
    life(1);
    put("step", "");
    return await_standby();
  }

 private:
  const std::filesystem::path before_ = std::filesystem::current_path();
};

TEST_F(StandingByTest, BecomesTheProgramWhichFindsWhatItFoundBefore) {
  start_python();
  const pid_t first = started();
  json before = life(1);
  EXPECT_EQ(before["own"]["pid"], first);
  EXPECT_TRUE(waited().empty()) << "before a step";
  put("step", "");
  const pid_t standby = await_standby();
  EXPECT_NE(standby, first);
  // Meant for the program.
  for (const int signal : {SIGUSR1, SIGTERM, SIGHUP, SIGINT}) {
    ASSERT_EQ(::kill(standby, signal), 0);
  }
  EXPECT_EQ(restart(), standby);
  json after = life(2);
  EXPECT_EQ(after["own"]["pid"], standby);
  EXPECT_EQ(after["own"]["SLURM_TASK_PID"], std::to_string(standby));
  EXPECT_EQ(after["own"]["HPCTL_GENERATION"], "2");
  EXPECT_EQ(after["own"]["TORCHELASTIC_RESTART_COUNT"], "1");
  EXPECT_NE(after["own"]["HPCTL_PROGRESS_FILE"], before["own"]["HPCTL_PROGRESS_FILE"]);
  EXPECT_NE(after["own"]["HPCTL_WORKER"], before["own"]["HPCTL_WORKER"]);
  EXPECT_FALSE(process_runs(before["own"]["sleeper"]))
      << "what the first life had left" << broken_promise("leftover");
  before.erase("own");
  after.erase("own");
  EXPECT_EQ(after, before);
  EXPECT_EQ(text_of("output"), "printed by told\nprinted by 1\nprinted by 2\n")
      << "what one that waits prints is not for the task's output";
  // The next in line.
  await("another standby", [&] { return waited().size() == 2; });
  stop(2);
  EXPECT_FALSE(process_runs(standby)) << broken_promise("leftover");
  EXPECT_FALSE(process_runs(json::parse(text_of("life.2"))["own"]["sleeper"]))
      << broken_promise("leftover");
}

TEST_F(StandingByTest, FindsItsTerminal) {
  UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(master.valid() && ::grantpt(master.get()) == 0 && ::unlockpt(master.get()) == 0);
  output_.reset(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(output_.valid());
  const pid_t standby = start_and_step();
  EXPECT_EQ(restart(), standby);
  json before = life(1);
  json after = life(2);
  EXPECT_TRUE(before["streams"][1][0]);
  EXPECT_EQ(after["streams"], before["streams"]);
  EXPECT_EQ(after["descriptors"], before["descriptors"]);
}

TEST_F(StandingByTest, BecomesAScriptThatIsAProgram) {
  const std::string script = directory_ / "script";
  put("script", "#!/usr/bin/env python3" + std::string(kProgram));
  ASSERT_EQ(::chmod(script.c_str(), 0755), 0);
  start_program({script, "--lr", "1"});
  started();
  json before = life(1);
  put("step", "");
  const pid_t standby = await_standby();
  EXPECT_EQ(restart(), standby);
  json after = life(2);
  before.erase("own");
  after.erase("own");
  EXPECT_EQ(after, before);
}

TEST_F(StandingByTest, IsThereAfterAWhileWhereNoStepIsTold) {
  settings_.standby_times.without_steps_ms = 1;
  start_python();
  started();
  await_standby();
  EXPECT_FALSE(is_accessible(directory_ / "step"));
}

// What its imports have begun carries another mark than the program's processes.
TEST_F(StandingByTest, WhatItStartedBeforeIsEndedWithTheProgram) {
  put("told.py", std::string(kTold) +
                     "import subprocess\n"
                     "early = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
                     "open('early.part', 'w').write(str(early.pid))\n"
                     "os.rename('early.part', 'early.' + str(os.getpid()))\n");
  const pid_t standby = start_and_step();
  const pid_t early = std::stoi(text_of("early." + std::to_string(standby)));
  EXPECT_EQ(restart(), standby);
  life(2);
  EXPECT_TRUE(process_runs(early));
  stop(2);
  EXPECT_FALSE(process_runs(early)) << broken_promise("leftover");
}

TEST_F(StandingByTest, OneThatEndsIsReplacedAFewTimes) {
  put("told.py", "import os\nopen('lives', 'a').write('x')\nraise ValueError('as ordered')\n");
  put("program.py",
      "import os, time\nopen(os.environ['HPCTL_PROGRESS_FILE'], 'w').write('1\\n')\n"
      "time.sleep(1000)\n");
  settings_.standby_times.replace_after_ms = 1;
  lowers_priority_ = false;  // eight of them
  start_python();
  const pid_t first = started();
  await("four tries", [&] { return text_of("lives").size() == 4; });
  const pid_t second = restart();
  EXPECT_NE(second, first);
  EXPECT_TRUE(process_runs(second));
  await("four more", [&] { return text_of("lives").size() >= 8; });
  stop(2);
  EXPECT_EQ(text_of("lives").size(), 8U);
  const std::string said = text_of("output");
  EXPECT_THAT(said, HasSubstr("has ended (ValueError: as ordered); 3 times in a generation"));
  EXPECT_EQ(said.find("stood by"), said.rfind("stood by")) << "said once: " << said;
}

TEST_F(StandingByTest, OneThatDoesNotAnswerIsReplaced) {
  settings_.standby_times.replace_after_ms = 1;
  settings_.ping_times = {1, 300};
  const pid_t standby = start_and_step();
  // One that had no turn for so long has been ended already.
  const UniqueFd process = open_pidfd(standby);
  if (process.valid()) signal_pidfd(process, SIGSTOP);
  EXPECT_TRUE(await_end(process));
  await("another", [&] { return waited().size() > 1; });
  EXPECT_THAT(text_of("output"), HasSubstr("did not answer for 300 ms"));
}

TEST_F(StandingByTest, OneThatDoesNotAnswerIsNotTheProgram) {
  settings_.standby_times.answer_ms = 1;
  const pid_t standby = start_and_step();
  const UniqueFd process = open_pidfd(standby);
  ASSERT_EQ(::kill(standby, SIGSTOP), 0);
  const pid_t second = restart();
  EXPECT_NE(second, standby);
  EXPECT_TRUE(await_end(process));
  EXPECT_EQ(life(2)["own"]["pid"], second);
}

TEST_F(StandingByTest, OneThatIsNotReadyIsNotTheProgram) {
  put("told.py",
      "import os, time\nMARK = ''\n"
      "if os.path.exists('step'): open(f'waits.{os.getpid()}', 'w'); time.sleep(1000)\n");
  const pid_t standby = start_and_step();
  const UniqueFd process = open_pidfd(standby);
  put("told.py", "MARK = ''\n");
  EXPECT_NE(restart(), standby);
  EXPECT_TRUE(await_end(process));
  life(2);
}

TEST_F(StandingByTest, EndsWithItsShimItsStepAndItsSupervision) {
  const std::vector<std::function<void()>> ends = {
      [&] { ::kill(shim_, SIGKILL); },           [&] { say(step::Finish{7}); },
      [&] { say(step::Release{"as ordered"}); }, [&] { controller_.reset(); },
      [&] { ::kill(shim_, SIGTERM); },  // Slurm's: the test is its parent
  };
  for (size_t i = 0; i < ends.size(); ++i) {
    const pid_t standby = start_and_step();
    ASSERT_FALSE(HasFatalFailure());
    const UniqueFd process = open_pidfd(standby);
    ends[i]();
    EXPECT_TRUE(await_end(process)) << i;
    end_shim();
    end_processes_of(1);
    for (const char* name : {"life.1", "step"}) {
      ASSERT_TRUE(remove_tree(directory_ / name).ok());
    }
    for (const pid_t pid : waited()) {
      ASSERT_TRUE(remove_tree(directory_ / ("waits." + std::to_string(pid))).ok());
    }
  }
}

TEST_F(StandingByTest, WhatCannotHaveOneRunsAsEverAndIsTold) {
  settings_.standby_times.without_steps_ms = 1;
  start("exec sleep 1000", 1);
  started();
  EXPECT_THAT(
      text_of("output"),
      HasSubstr("no standby: HPCTL_STANDBY_IMPORTS=told is for a program that is started "
                "with python, as in srun python train.py, or that names it in its first line; "
                "/bin/sh does not\n"));
  end_shim();
  settings_.standby_imports = "told,no module";
  start_python();
  EXPECT_EQ(life(1)["own"]["pid"], started());
  EXPECT_THAT(text_of("output"), HasSubstr("=told,no module is not a list of at most 32 modules"));
  EXPECT_TRUE(waited().empty());
}

}  // namespace
}  // namespace hpctl::shim
