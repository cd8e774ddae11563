// SPDX-License-Identifier: Apache-2.0
// The input is printed in hex, as a file of regressions/ takes it, and whole where
// HPCTL_FUZZ_INPUT names a file. Only what a signal handler may do is done.
#include "tests/fuzz/input_guard.h"

#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/fuzz/properties.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HPCTL_COUNTS_MEMORY
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define HPCTL_COUNTS_MEMORY
#endif
#if defined(HPCTL_COUNTS_MEMORY)
// Of compiler-rt's sanitizer/allocator_interface.h and common_interface_defs.h, which gcc's runtime
// has as well and does not declare.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void*, size_t),
                                              void (*freed)(const volatile void*));
size_t __sanitizer_get_allocated_size(const volatile void* memory);
void __sanitizer_set_death_callback(void (*callback)());
}
#endif

namespace hpctl::fuzz {
namespace {

constexpr int kMostSeconds = 20;  // of computing, sanitizers included
constexpr size_t kShownBytes = 2048;

const char* current_harness = nullptr;
const char* current_data = nullptr;
size_t current_size = 0;
const char* kept_path = nullptr;
bool shows_inputs = false;

void say(std::string_view text) { (void)!::write(STDERR_FILENO, text.data(), text.size()); }

// In the middle of a run the program is about to end.
void show_input() {
  if (current_harness == nullptr) return;
  say("\nfuzz: in harness ");
  say(current_harness);
  say(", by this input in hex:\n");
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (size_t i = 0; i < std::min(current_size, kShownBytes); ++i) {
    const auto byte = static_cast<uint8_t>(current_data[i]);
    const std::array<char, 2> digits = {kDigits[byte >> 4], kDigits[byte & 15]};
    say({digits.data(), digits.size()});
  }
  say(current_size > kShownBytes ? "... (HPCTL_FUZZ_INPUT=FILE keeps all of it)\n" : "\n");
  if (kept_path != nullptr) {
    const int fd = ::open(kept_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd >= 0) (void)!::write(fd, current_data, current_size);
    if (fd >= 0) ::close(fd);
  }
  current_harness = nullptr;
}

void on_signal(int number) {
  if (number == SIGVTALRM) say("\nfuzz: it computes for too long\n");
  show_input();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

#if defined(HPCTL_COUNTS_MEMORY)
std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> most_live_bytes{0};

void on_allocated(const volatile void* /*memory*/, size_t size) {
  const int64_t live = live_bytes.fetch_add(static_cast<int64_t>(size)) + int64_t(size);
  if (live > most_live_bytes.load()) most_live_bytes.store(live);
}
void on_freed(const volatile void* memory) {
  if (memory == nullptr) return;
  live_bytes.fetch_sub(static_cast<int64_t>(__sanitizer_get_allocated_size(memory)));
}
#endif

void count_memory() {
#if defined(HPCTL_COUNTS_MEMORY)
  static const bool counted =
      __sanitizer_install_malloc_and_free_hooks(on_allocated, on_freed) != 0;
  require(counted, "the sanitizer does not tell what is allocated");
  live_bytes = 0;
  most_live_bytes = 0;
#endif
}

void set_patience(int seconds) {
  if (!shows_inputs) return;
  itimerval patience{};
  patience.it_value.tv_sec = seconds;
  ::setitimer(ITIMER_VIRTUAL, &patience, nullptr);
}

}  // namespace

void show_inputs_that_end_the_program() {
  kept_path = std::getenv("HPCTL_FUZZ_INPUT");
  shows_inputs = true;
  for (const int number : {SIGVTALRM, SIGABRT}) std::signal(number, on_signal);
#if defined(HPCTL_COUNTS_MEMORY)
  __sanitizer_set_death_callback(show_input);
#else
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(number, on_signal);
#endif
}

bool counts_memory() {
#if defined(HPCTL_COUNTS_MEMORY)
  return true;
#else
  return false;
#endif
}

InputGuard::InputGuard(const char* harness, std::string_view input, size_t most_bytes)
    : most_bytes_(most_bytes) {
  current_data = input.data();
  current_size = input.size();
  current_harness = harness;
  set_patience(kMostSeconds);
  count_memory();
}

InputGuard::~InputGuard() {
#if defined(HPCTL_COUNTS_MEMORY)
  const int64_t most = most_live_bytes;
  require(most <= static_cast<int64_t>(most_bytes_),
          std::to_string(most) + " bytes were allocated at one time for an input of " +
              std::to_string(current_size) + ", allowed are " + std::to_string(most_bytes_));
#endif
  set_patience(0);
  current_harness = nullptr;
}

}  // namespace hpctl::fuzz
