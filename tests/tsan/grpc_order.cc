// SPDX-License-Identifier: Apache-2.0
// Linked into every program of the tsan preset that uses gRPC; nothing else contains it.
//
// Debian's gRPC and absl are not instrumented: the thread sanitizer sees neither their futexes nor
// their atomics, and takes what they order for unordered. The functions here stand before those of
// the libraries and tell it exactly what the libraries' contracts promise, and no more:
//   absl::Mutex         an unlock happens before the next lock
//   a batch of gRPC     its start happens before its completion leaves the queue
//   a server's reactor  all its other reactions happen before OnDone, and the handler before
//                       OnCancel
// So races between gRPC's threads and ours are found as if gRPC had been built with the sanitizer.
#include <absl/synchronization/mutex.h>
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpcpp/support/server_callback.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>

namespace {

// The library's own function. Names are those of Debian bookworm; another release may differ.
template <typename Function>
Function* find(const char* name) {
  void* found = ::dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    std::fprintf(stderr, "tests/tsan/grpc_order.cc: no library has %s\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

template <typename T>
void released(T* object) {
  __tsan_release(const_cast<void*>(static_cast<const volatile void*>(object)));
}

template <typename T>
void acquired(T* object) {
  __tsan_acquire(const_cast<void*>(static_cast<const volatile void*>(object)));
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static auto* const real = find<void(Mutex*)>("_ZN4absl7debian35Mutex4LockEv");
  real(this);
  acquired(this);
}

bool Mutex::TryLock() {
  static auto* const real = find<bool(Mutex*)>("_ZN4absl7debian35Mutex7TryLockEv");
  const bool locked = real(this);
  if (locked) acquired(this);
  return locked;
}

void Mutex::Unlock() {
  static auto* const real = find<void(Mutex*)>("_ZN4absl7debian35Mutex6UnlockEv");
  released(this);
  real(this);
}

// Waiting unlocks and locks again inside the library.
void CondVar::Wait(Mutex* mutex) {
  static auto* const real =
      find<void(CondVar*, Mutex*)>("_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
  released(mutex);
  real(this, mutex);
  acquired(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static auto* const real = find<bool(CondVar*, Mutex*, Duration)>(
      "_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  released(mutex);
  const bool late = real(this, mutex, timeout);
  acquired(mutex);
  return late;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static auto* const real = find<bool(CondVar*, Mutex*, Time)>(
      "_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  released(mutex);
  const bool late = real(this, mutex, deadline);
  acquired(mutex);
  return late;
}

ABSL_NAMESPACE_END
}  // namespace absl

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t nops, void* tag,
                                      void* reserved) {
  static auto* const real = find<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  released(static_cast<char*>(tag));
  return real(call, ops, nops, tag, reserved);
}

// Callbacks too come from here: gRPC's own threads take completions and call the functor in them.
grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline,
                                      void* reserved) {
  static auto* const real =
      find<decltype(grpc_completion_queue_next)>("grpc_completion_queue_next");
  const grpc_event event = real(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) acquired(static_cast<char*>(event.tag));
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static auto* const real =
      find<decltype(grpc_completion_queue_pluck)>("grpc_completion_queue_pluck");
  const grpc_event event = real(queue, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) acquired(static_cast<char*>(event.tag));
  return event;
}

}  // extern "C"

namespace grpc::internal {

// The counters are atomic; whichever side was last, the library or we, the others' part is acquired
// here. The mutex of gRPC's executor takes it to the thread that calls OnDone or OnCancel.
void ServerCallbackCall::ScheduleOnDone(bool inline_ondone) {
  static auto* const real = find<void(ServerCallbackCall*, bool)>(
      "_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb");
  callbacks_outstanding_.load(std::memory_order_acquire);
  real(this, inline_ondone);
}

void ServerCallbackCall::CallOnCancel(ServerReactor* reactor) {
  static auto* const real = find<void(ServerCallbackCall*, ServerReactor*)>(
      "_ZN4grpc8internal18ServerCallbackCall12CallOnCancelEPNS0_13ServerReactorE");
  on_cancel_conditions_remaining_.load(std::memory_order_acquire);
  real(this, reactor);
}

}  // namespace grpc::internal
