// SPDX-License-Identifier: Apache-2.0
// A worker for tests, driven by its arguments in order:
//   report            print what the child environment looks like, one "key value" per line
//   map               map the progress page
//   step N            complete step N (the first one also stamps first_step_unix_ns)
//   train N           complete N further steps, each 10 ms or more after the one before
//   commit N          say that the checkpoint of step N is committed
//   unfit N           step N was not applied, as rank 0 tells
//   scribble          one store into the page that says 2^64-1 steps were not applied
//   overwrite         the page's steps say what no trainer reaches
//   say TEXT          last words
//   print TEXT        a line on stdout
//   fill N            N lines of 100 bytes on stdout
//   child | stray     start a process that sleeps, in this process group | in a session of its own,
//                     and print its id
//   file PATH         create PATH, to tell the test how far we are
//   wait PATH         until PATH exists
//   saving            say that a save holds the process up, until it joins a generation
//   lose N            tell the control socket that a peer of generation N was lost
//   ready             tell the control socket that it is
//   obey              do what the control socket says, as the trainer would: prints "joined N" and
//                     its workload, takes a page and completes step 1 of each generation joined;
//                     "asked N" when it is asked whether it still could
//   hang              for ever
//   deaf              ignore SIGTERM
//   exit N
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "common/job/bad_step.h"
#include "common/net/packet_socket.h"
#include "common/worker/arena_header.h"
#include "common/worker/worker_abi.h"
#include "common/worker/worker_control.h"

namespace {

namespace control = hpctl::control;

hpctl::ProgressPage* page = nullptr;

uint64_t now_unix_ns() {
  timespec ts{};
  ::clock_gettime(CLOCK_REALTIME, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(ts.tv_nsec);
}

void report() {
  std::printf("pgid_is_pid %d\n", ::getpgrp() == ::getpid());
  int death_signal = 0;
  ::prctl(PR_GET_PDEATHSIG, &death_signal);
  std::printf("pdeathsig %d\n", death_signal);
  int score = 0;
  std::ifstream("/proc/self/oom_score_adj") >> score;
  std::printf("oom_score_adj %d\n", score);
  sigset_t mask;
  ::sigprocmask(SIG_BLOCK, nullptr, &mask);
  int blocked = 0;
  int handled = 0;
  for (int signal = 1; signal < 32; ++signal) blocked += ::sigismember(&mask, signal);
  for (const int signal : {SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGCHLD}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_DFL) ++handled;
  }
  std::printf("blocked_signals %d\nhandled_signals %d\n", blocked, handled);
  DIR* directory = ::opendir("/proc/self/fd");
  std::string fds;
  while (const dirent* entry = ::readdir(directory)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] == '.' || fd == ::dirfd(directory)) continue;
    fds += std::to_string(fd) + ",";
  }
  ::closedir(directory);
  std::printf("fds %s\n", fds.c_str());
  char workload[256] = {};
  const ssize_t n = ::read(hpctl::kWorkloadFd, workload, sizeof(workload) - 1);
  std::printf("workload %s\n", n > 0 ? workload : "");
  struct stat st {};
  ::fstat(hpctl::kArenaFd, &st);
  std::printf("arena_bytes %ld\narena_inode %lu\n", static_cast<long>(st.st_size), st.st_ino);
  std::printf("cwd %s\n", std::filesystem::current_path().c_str());
  for (const char* name : {"RANK", "HPCTL_GENERATION", "OMP_NUM_THREADS", "WORLD_SIZE"}) {
    if (const char* value = std::getenv(name)) std::printf("%s %s\n", name, value);
  }
  std::fflush(stdout);
}

void start_sleeper(bool own_session) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (own_session) ::setsid();
    for (;;) ::pause();
  }
  std::printf("sleeper %d\n", pid);
  std::fflush(stdout);
}

void step(uint64_t value) {
  uint64_t none = 0;
  page->phase = static_cast<uint32_t>(hpctl::WorkerPhase::kTraining);
  page->first_step_unix_ns.compare_exchange_strong(none, now_unix_ns());
  page->step.store(value, std::memory_order_release);
}

void train(int steps) {
  for (; steps > 0; --steps) {
    ::usleep(10'000);
    step(page->step + 1);
  }
}

// As trainer/state/state_arena.cc leaves it.
void seal(uint64_t step) {
  hpctl::ArenaHeader header{};
  header.magic = hpctl::kArenaMagic;
  header.version = hpctl::kArenaVersion;
  header.shard_index = std::atoi(std::getenv("RANK"));
  header.shard_count = 1;
  header.slots[0].step = step;
  header.slots[0].digest = 77;
  header.slots[0].generation = 1;
  for (auto& slot : std::span(header.slots).subspan(1)) slot.step = hpctl::kUnsealed;
  if (::pwrite(hpctl::kArenaFd, &header, sizeof(header), 0) != sizeof(header)) ::_exit(1);
}

void bad_step(uint64_t step) {
  const uint64_t number = page->bad_steps + 1;
  hpctl::BadStepSlot& slot = page->bad_step[(number - 1) % hpctl::kBadStepSlots];
  slot.step = step;
  slot.finding = static_cast<uint32_t>(hpctl::BadStepFinding::kLossSpike);
  slot.outcome = static_cast<uint32_t>(hpctl::BadStepOutcome::kSkipped);
  std::memcpy(slot.reason, "high\a", 5);
  slot.reason_length = 5;
  slot.number.store(number, std::memory_order_release);
  page->bad_steps.store(number, std::memory_order_release);
}

void map_page() {
  page = static_cast<hpctl::ProgressPage*>(::mmap(nullptr, hpctl::kProgressPageBytes,
                                                  PROT_READ | PROT_WRITE, MAP_SHARED,
                                                  hpctl::kProgressFd, 0));
  page->version = hpctl::kProgressVersion;
  page->start_unix_ns = now_unix_ns();
  page->magic.store(hpctl::kProgressMagic, std::memory_order_release);
}

void say(hpctl::PacketSocket& socket, const control::FromWorker& message) {
  if (!socket.send_now(control::encode(message)).ok()) ::_exit(1);
}

void join(const control::Join& order, const hpctl::UniqueFd& document) {
  char workload[256] = {};
  if (::read(document.get(), workload, sizeof(workload) - 1) < 0) ::_exit(1);
  struct stat st {};
  ::fstat(hpctl::kArenaFd, &st);
  std::printf("joined %lu\nworkload %s\narena_inode %lu\n", order.generation, workload, st.st_ino);
  std::fflush(stdout);
  map_page();
  step(1);
}

void obey(hpctl::PacketSocket& socket) {
  for (;;) {
    pollfd readable{socket.fd(), POLLIN, 0};
    ::poll(&readable, 1, -1);
    auto packet = socket.receive();
    if (!packet.ok()) ::_exit(0);
    if (!packet->has_value()) continue;
    const auto message = control::decode_to_worker((*packet)->bytes);
    if (!message.ok()) ::_exit(1);
    if (const auto* take = std::get_if<control::Take>(&*message)) {
      ::dup2((*packet)->descriptor.get(), take->descriptor);
    } else if (const auto* ping = std::get_if<control::Ping>(&*message)) {
      say(socket, control::Pong{ping->number});
      std::printf("asked %lu\n", ping->number);
      std::fflush(stdout);
    } else if (const auto* abort = std::get_if<control::Abort>(&*message)) {
      say(socket, control::Aborted{abort->generation});
    } else if (const auto* order = std::get_if<control::Join>(&*message)) {
      join(*order, (*packet)->descriptor);
    } else {
      ::_exit(0);
    }
  }
}

// Until the kernel ends it.
void grow() {
  for (;;) {
    constexpr size_t kPiece = size_t{8} << 20;
    ::mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1,
           0);
  }
}

void wait_for(const std::string& path) {
  while (::access(path.c_str(), F_OK) != 0) ::usleep(1000);
}

}  // namespace

// A SIGSEGV that is sent, from the first moment on, is a fault on purpose and not a sanitizer's.
extern "C" {
const char* __asan_default_options();
const char* __tsan_default_options();
const char* __asan_default_options() { return "handle_segv=0"; }
const char* __tsan_default_options() { return "handle_segv=0"; }
}

int main(int argc, char** argv) {
  hpctl::PacketSocket control_socket{hpctl::UniqueFd(hpctl::kControlFd)};
  for (int i = 1; i < argc; ++i) {
    const std::string verb = argv[i];
    const auto text = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (verb == "report") report();
    if (verb == "map") map_page();
    if (verb == "step") step(std::stoull(text()));
    if (verb == "train") train(std::stoi(text()));
    if (verb == "commit") page->checkpoint_step = std::stoull(text());
    if (verb == "saving") page->phase = static_cast<uint32_t>(hpctl::WorkerPhase::kSaving);
    if (verb == "seal") seal(std::stoull(text()));
    if (verb == "scribble") page->bad_steps = UINT64_MAX;
    if (verb == "overwrite") page->step = page->checkpoint_step = UINT64_MAX;
    if (verb == "bad_step") bad_step(std::stoull(text()));
    if (verb == "say") {
      const std::string words = text();
      std::memcpy(page->message, words.data(), words.size());
      page->message_length.store(static_cast<uint32_t>(words.size()), std::memory_order_release);
    }
    if (verb == "print") {
      std::printf("%s\n", text().c_str());
      std::fflush(stdout);
    }
    if (verb == "fill") {
      for (int lines = std::stoi(text()); lines > 0; --lines) std::printf("%099d\n", lines);
      std::fflush(stdout);
    }
    if (verb == "child") start_sleeper(false);
    if (verb == "stray") start_sleeper(true);
    if (verb == "file") std::ofstream(text()) << ::getpid();
    if (verb == "wait") wait_for(text());
    if (verb == "lose") say(control_socket, control::PeerLost{std::stoull(text())});
    if (verb == "ready") say(control_socket, control::Ready{});
    if (verb == "obey") obey(control_socket);
    if (verb == "deaf") ::signal(SIGTERM, SIG_IGN);
    if (verb == "grow") grow();
    if (verb == "hang") {
      for (;;) ::pause();
    }
    if (verb == "exit") return std::stoi(text());
  }
  return 0;
}
