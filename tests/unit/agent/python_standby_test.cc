// SPDX-License-Identifier: Apache-2.0
// A Python that stood by is, once it takes part, what the command itself would have been: the same
// program is run both ways and must say the same of itself. Real Pythons, orders as the agent makes
// them.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <optional>

#include "agent/holder/worker.h"
#include "agent/worker_command.h"
#include "common/base/file.h"
#include "common/process/process_stat.h"
#include "common/worker/worker_control.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/agent/node_fixture.h"

namespace hpctl::agent {
namespace {

using ::testing::Each;

constexpr const char* kPython = "/usr/bin/python3";

// What a process can be told apart by, from inside; then it fails, so that a traceback is compared
// as well. `told` is a module beside it, which says when it is imported and begins a thread.
constexpr const char* kProgram = R"(
import os, pickle, sys, told

class Row:
    pass

def place_of(path):
    return os.path.realpath(path) if path else path

print(__name__, __spec__ and __spec__.name, __package__, type(__loader__).__name__, __doc__)
print(globals().get("__file__"), sys.argv, place_of(sys.path[0]), os.getcwd())
print(sorted(name for name in globals() if name != "__annotations__"))
print(type(pickle.loads(pickle.dumps(Row()))) is Row, sys.modules["__main__"].Row is Row)
print({name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "HPCTL_GENERATION", "GIVEN")})
print([os.sched_getscheduler(int(t)) for t in os.listdir("/proc/self/task")])
print(sys.flags.optimize, os.path.exists("/proc/self/fd/6"), sys.stdin.read() == "")
sys.stdout.flush()
told.fail()
)";
constexpr const char* kTold = R"(
import threading
print("told is imported", flush=True)
threading.Thread(target=threading.Event().wait, daemon=True).start()

def fail():
    raise ValueError("as ordered")
)";

struct Ended {
  int status = 0;
  std::string log;  // without the line that begins it
};

class PythonStandby : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(logs_.start().ok());
    ASSERT_TRUE(make_directories(directory_.path() + "/package").ok());
    put("package/__init__.py", "");
    put("package/program.py", kProgram);
    put("program.py", kProgram);
    put("told.py", kTold);
    put("package/told.py", kTold);
  }
  void put(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(write_file_atomic(directory_.path() + "/" + name, text).ok());
  }
  v1::StartWorkers order(const std::vector<std::string>& command,
                         const std::string& modules) const {
    v1::StartWorkers start;
    start.set_generation(3);
    start.add_ranks(5);
    start.set_world_size(8);
    for (const std::string& word : command) start.add_command(word);
    (*start.mutable_env())["GIVEN"] = "a=b";
    start.set_log_dir(directory_.path());
    start.add_standby_imports(modules);
    return start;
  }
  std::string log_of(const std::string& name) const {
    const auto text = read_file(directory_.path() + "/" + name);
    return text.ok() ? *text : text.error().message;
  }
  // Until all that was printed is in its files.
  void write_logs() {
    logs_.finish(60'000);
    ASSERT_TRUE(logs_.start().ok());
  }
  // Reads what it prints to the end, then reaps it.
  Ended end_of(holder::Worker& worker) {
    pollfd readable{worker.log->read_end(), POLLIN, 0};
    do {
      if (::poll(&readable, 1, 60'000) != 1) {
        worker.signal_group(SIGKILL);
        ADD_FAILURE() << "it goes on for a minute";
        break;
      }
    } while (worker.log->drain());
    Ended ended;
    ::waitpid(worker.pid(), &ended.status, 0);
    write_logs();
    const std::string log = log_of("rank-5.log");
    ended.log = log.substr(log.find("----\n") + 5);
    for (const char* name : {"/rank-5.log", "/standby-n1.log"}) {
      EXPECT_TRUE(remove_tree(directory_.path() + name).ok());
    }
    return ended;
  }
  std::unique_ptr<holder::Worker> start(const Result<holder::Spawn>& spawn, uint64_t incarnation) {
    EXPECT_TRUE(spawn.ok()) << spawn.error().message;
    auto worker = holder::start_worker(*spawn, incarnation, place_of_workers());
    EXPECT_TRUE(worker.ok()) << worker.error().message;
    return std::move(worker).value();
  }
  holder::WorkerPlace place_of_workers() { return {"n1", "boot", arena_.get(), &logs_}; }
  Ended run(const v1::StartWorkers& order) {
    return end_of(*start(make_spawn(order, 0, place_), 1));
  }
  bool says(holder::Worker& standby, const std::string& text) const {
    return test::eventually([&] {
      standby.log->drain();
      return log_of("standby-n1.log").find(text) != std::string::npos;
    });
  }
  // With its imports done.
  std::unique_ptr<holder::Worker> stand_by(const v1::StartWorkers& order) {
    auto standby = start(make_standby(order, place_), 2);
    EXPECT_TRUE(says(*standby, "standby is ready: imported " + order.standby_imports(0) + " in "));
    return standby;
  }
  Ended take_part(holder::Worker& standby, const v1::StartWorkers& order) {
    const auto spawn = make_spawn(order, 0, place_);
    EXPECT_TRUE(spawn.ok() && spawn->python == 1);
    const auto joined = holder::join_worker(standby, *spawn, place_of_workers());
    EXPECT_TRUE(joined.ok()) << joined.error().message;
    return end_of(standby);
  }
  // Both ways.
  void expect_the_same(const v1::StartWorkers& order, const std::string& modules_say) {
    const Ended plain = run(order);
    const auto standby = stand_by(order);
    const Ended taken = take_part(*standby, order);
    EXPECT_EQ(WEXITSTATUS(taken.status), WEXITSTATUS(plain.status));
    EXPECT_TRUE(WIFEXITED(taken.status));
    EXPECT_EQ(modules_say + taken.log, plain.log) << "the modules were imported before";
  }

  TemporaryDirectory directory_;
  LogWriter logs_;
  NodePlace place_{42, "n1", directory_.path(), "/opt/hpctl/bin", directory_.path()};
  UniqueFd arena_ = holder::make_arena().value();
};

constexpr const char* kToldSays = "told is imported\n";

TEST_F(PythonStandby, RunsAScript) {
  expect_the_same(order({kPython, directory_.path() + "/program.py", "--lr", "1"}, "told"),
                  kToldSays);
}

TEST_F(PythonStandby, RunsAScriptWithOptionsFromAnotherDirectory) {
  expect_the_same(order({kPython, "-uO", "-X", "utf8", "package/../program.py"}, "told"),
                  kToldSays);
}

// The kernel starts it, and Python by its first line.
TEST_F(PythonStandby, RunsAScriptThatIsAProgram) {
  for (const std::string line : {"#!/usr/bin/python3 -uO", "#!/usr/bin/env python3"}) {
    put("train", line + kProgram);
    const std::string path = directory_.path() + "/train";
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
    expect_the_same(order({path, "--lr", "1"}, "told"), kToldSays);
  }
}

TEST_F(PythonStandby, AnotherProgramHasNone) {
  const auto standby = make_standby(order({"/bin/sh", "-c", "true"}, "told"), place_);
  ASSERT_FALSE(standby.ok());
  EXPECT_NE(standby.error().message.find("names Python in its first line"), std::string::npos);
}

TEST_F(PythonStandby, RunsAModule) {
  put("told.py", kTold);
  expect_the_same(order({kPython, "-m", "package.program", "x"}, "told"), kToldSays);
}

TEST_F(PythonStandby, RunsCode) {
  expect_the_same(order({kPython, "-c", kProgram, "x", "-y"}, "told"), kToldSays);
}

// A path may hold any bytes. JSON made another path of it, which the program then did not find.
TEST_F(PythonStandby, ArgumentThatIsNotUtf8Survives) {
  expect_the_same(order({kPython, "-c", kProgram, "/data/\xff\xc3\xa4\xe2\"\\/x"}, "told"),
                  kToldSays);
}

// Python's own words for it, as nothing of it can be taken over.
TEST_F(PythonStandby, WhatIsNoScriptIsStartedAnew) {
  ASSERT_TRUE(make_directories(directory_.path() + "/folder").ok());
  put("folder/__main__.py", "import sys; print(sys.argv, __name__); sys.exit(7)");
  const auto folder = order({kPython, "folder", "x"}, "json");
  const Ended plain = run(folder);
  EXPECT_EQ(WEXITSTATUS(plain.status), 7);
  const Ended taken = take_part(*stand_by(folder), folder);
  EXPECT_EQ(WEXITSTATUS(taken.status), 7);
  EXPECT_EQ(taken.log, plain.log);

  const auto missing = order({kPython, "nowhere.py"}, "json");
  const Ended failed = run(missing);
  EXPECT_EQ(take_part(*stand_by(missing), missing).log, failed.log);
}

// The rank is named in what its module cannot know yet.
TEST_F(PythonStandby, AModuleThatIsNotThereEndsItAtOnce) {
  const auto told = order({kPython, "program.py"}, "no_such_module");
  const auto standby = start(make_standby(told, place_), 2);
  int status = 0;
  ASSERT_EQ(::waitpid(standby->pid(), &status, 0), standby->pid());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  standby->log->drain();
  write_logs();
  EXPECT_NE(log_of("standby-n1.log").find("No module named 'no_such_module'"), std::string::npos);
}

TEST_F(PythonStandby, SaysThatItIsReadyAndAnswersUntilItTakesPart) {
  const auto told = order({kPython, "program.py"}, "told");
  const auto standby = stand_by(told);
  const auto said = [&]() -> std::optional<control::FromWorker> {
    std::optional<control::FromWorker> message;
    EXPECT_TRUE(test::eventually([&] {
      const auto packet = standby->control->receive();
      if (!packet.ok() || !packet->has_value()) return false;
      const auto decoded = control::decode_from_worker((*packet)->bytes);
      if (decoded.ok()) message = *decoded;
      return true;
    }));
    return message;
  };
  const auto ready = said();
  EXPECT_TRUE(ready && std::holds_alternative<control::Ready>(*ready));
  for (const uint64_t number : {7U, 70'000U}) {
    ASSERT_TRUE(standby->control->send_now(control::encode(control::Ping{number})).ok());
    const auto pong = said();
    ASSERT_TRUE(pong && std::holds_alternative<control::Pong>(*pong));
    EXPECT_EQ(std::get<control::Pong>(*pong).number, number);
  }
  EXPECT_NE(take_part(*standby, told).log.find("ValueError: as ordered"), std::string::npos);
}

// A fault comes soon after the first step: it is told to take part while it still imports, and its
// holder then listens no more.
TEST_F(PythonStandby, MayBeToldBeforeItIsReady) {
  put("slow.py",
      "import os, time\nprint('begun', flush=True)\n"
      "while not os.path.exists('go'): time.sleep(0.01)\n");
  const auto told = order({kPython, "program.py"}, "slow");
  const auto standby = start(make_standby(told, place_), 2);
  ASSERT_TRUE(says(*standby, "begun"));
  const auto spawn = make_spawn(told, 0, place_);
  ASSERT_TRUE(spawn.ok());
  const auto joined = holder::join_worker(*standby, *spawn, place_of_workers());
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  standby->control.reset();
  put("go", "");
  const std::string log = end_of(*standby).log;
  EXPECT_NE(log.find("ValueError: as ordered"), std::string::npos) << log;
}

constexpr int kIdlePolicy = 5;  // SCHED_IDLE

// Of all its threads.
std::vector<int> policies(const holder::Worker& worker) {
  std::vector<int> found;
  const std::string threads = "/proc/" + std::to_string(worker.pid()) + "/task";
  for (const auto& thread : std::filesystem::directory_iterator(threads)) {
    found.push_back(::sched_getscheduler(std::stoi(thread.path().filename())));
  }
  return found;
}

// Where raising it again is not allowed, it is not lowered.
int policy_of_imports() { return ::geteuid() == 0 ? kIdlePolicy : SCHED_OTHER; }

// Its modules may take long; it is not to take the time of who trains.
TEST_F(PythonStandby, ImportsWithTheLowestPriorityAndIsReadyWithTheOrdinaryOne) {
  put("slow.py",
      "import os, time, told\nprint('begun', flush=True)\n"
      "while not os.path.exists('go'): time.sleep(0.01)\n");
  const auto standby = start(make_standby(order({kPython, "program.py"}, "slow"), place_), 2);
  ASSERT_TRUE(says(*standby, "begun"));
  EXPECT_THAT(policies(*standby), Each(policy_of_imports()));
  put("go", "");
  ASSERT_TRUE(says(*standby, "standby is ready"));
  EXPECT_THAT(policies(*standby), Each(SCHED_OTHER));
  standby->control.reset();  // nobody will tell it anything
  int status = 0;
  EXPECT_EQ(::waitpid(standby->pid(), &status, 0), standby->pid());
  EXPECT_TRUE(WIFEXITED(status));
}

// A module that is loaded may hold the lock of the interpreter, so that no thread of it can do
// anything.
TEST_F(PythonStandby, HasTheOrdinaryPriorityFromItsOrderOnAlsoWhileAModuleIsLoaded) {
  put("slow.py",
      "import ctypes, os, told\npipe = os.open('pipe', os.O_RDONLY)\nprint('begun', flush=True)\n"
      "ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)\n");
  const std::string path = directory_.path() + "/pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto told = order({kPython, "program.py"}, "slow");
  const auto standby = start(make_standby(told, place_), 2);
  UniqueFd pipe;
  ASSERT_TRUE(test::eventually([&] {
    pipe.reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    return pipe.valid();
  }));
  ASSERT_TRUE(says(*standby, "begun"));
  EXPECT_THAT(policies(*standby), Each(policy_of_imports()));
  const auto spawn = make_spawn(told, 0, place_);
  ASSERT_TRUE(spawn.ok());
  const auto joined = holder::join_worker(*standby, *spawn, place_of_workers());
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  EXPECT_THAT(policies(*standby), Each(SCHED_OTHER));
  pipe.reset();  // the end of what it reads
  const std::string log = end_of(*standby).log;
  EXPECT_NE(log.find("ValueError: as ordered"), std::string::npos) << log;
}

}  // namespace
}  // namespace hpctl::agent
