// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime without a GPU: a stream is a thread that does its tasks in order, device memory is
// memory. What the real one leaves undefined (a stream destroyed with work in it) waits here.
// Events tell the time of a clock that only stub_cuda_advance() moves. With STUB_CUDART_LACKS it is
// a release that has dropped some names.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

namespace {

class Stream {
 public:
  Stream() : thread_([this] { run(); }) {}
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void add(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void run() {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::thread thread_;
};

// The device that this thread has chosen.
thread_local int chosen_device = -1;
std::atomic<int> contexts_unasked{0};

std::mutex registered_mutex;
std::set<void*> registered;  // page-locked memory of others

std::atomic<int> clock_ms{0};
std::atomic<int> blocked{0};

// One recording of an event.
struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  int at_ms = 0;

  void reach() {
    const std::lock_guard lock(mutex);
    at_ms = clock_ms;
    reached = true;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    if (reached) return;
    ++blocked;
    changed.wait(lock, [this] { return reached; });
    --blocked;
  }
};

struct Event {
  std::shared_ptr<Mark> newest;
};

Stream& stream_of(void* handle) {
  static Stream the_default;
  return handle == nullptr ? the_default : *static_cast<Stream*>(handle);
}

}  // namespace

extern "C" {

// STUB_CUDA_DEVICES, or one.
int cudaGetDeviceCount(int* count) {
  const char* text = std::getenv("STUB_CUDA_DEVICES");
  *count = text == nullptr ? 1 : std::atoi(text);
  return *count > 0 ? 0 : 100;  // cudaErrorNoDevice
}
int cudaSetDevice(int device) {
  int count = 0;
  cudaGetDeviceCount(&count);
  if (device < 0 || device >= count) return 101;  // cudaErrorInvalidDevice
  chosen_device = device;
  return 0;
}

int cudaStreamCreateWithFlags(void** stream, unsigned) {
  *stream = std::make_unique<Stream>().release();
  return 0;
}
#ifndef STUB_CUDART_LACKS
int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return 0;
}
int cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  if (priority < -5 || priority > 0) return 1;  // cudaErrorInvalidValue
  return cudaStreamCreateWithFlags(stream, flags);
}
#endif
int cudaStreamDestroy(void* stream) {
  std::unique_ptr<Stream>(static_cast<Stream*>(stream)).reset();
  return 0;
}
int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  stream_of(stream).add([=] { function(data); });
  return 0;
}
int cudaStreamWaitEvent(void* stream, void* event, unsigned) {
  const std::shared_ptr<Mark> mark = static_cast<Event*>(event)->newest;
  if (mark) stream_of(stream).add([mark] { mark->wait(); });
  return 0;
}

int cudaEventCreateWithFlags(void** event, unsigned) {
  *event = std::make_unique<Event>().release();
  return 0;
}
int cudaEventDestroy(void* event) {
  std::unique_ptr<Event>(static_cast<Event*>(event)).reset();
  return 0;
}
int cudaEventRecord(void* event, void* stream) {
  const auto mark = std::make_shared<Mark>();
  static_cast<Event*>(event)->newest = mark;
  stream_of(stream).add([mark] { mark->reach(); });
  return 0;
}
int cudaEventQuery(void* event) {
  const std::shared_ptr<Mark> mark = static_cast<Event*>(event)->newest;
  if (!mark) return 0;
  const std::lock_guard lock(mark->mutex);
  return mark->reached ? 0 : 600;  // cudaErrorNotReady
}

int cudaEventElapsedTime(float* ms, void* begin, void* end) {
  for (void* event : {begin, end}) {
    const int status = cudaEventQuery(event);
    if (status != 0) return status;
  }
  *ms = static_cast<float>(static_cast<Event*>(end)->newest->at_ms -
                           static_cast<Event*>(begin)->newest->at_ms);
  return 0;
}
void stub_cuda_advance(int ms) { clock_ms += ms; }
// Streams that wait for an event.
int stub_cuda_blocked() { return blocked; }

int cudaMalloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return *memory == nullptr ? 2 : 0;  // cudaErrorMemoryAllocation
}
int cudaFree(void* memory) {
  std::free(memory);
  return 0;
}
// Memory that a thread without a device has taken, for which the real one makes a context on GPU 0.
int stub_cuda_contexts_unasked() { return contexts_unasked; }
int cudaMallocHost(void** memory, size_t bytes) {
  if (chosen_device < 0) ++contexts_unasked;
  return cudaMalloc(memory, bytes);
}
int cudaFreeHost(void* memory) { return cudaFree(memory); }
int cudaHostRegister(void* memory, size_t bytes, unsigned) {
  if (chosen_device < 0) ++contexts_unasked;
  if (reinterpret_cast<uintptr_t>(memory) % 4096 != 0 || bytes == 0) return 1;
  const std::lock_guard lock(registered_mutex);
  return registered.insert(memory).second ? 0 : 712;  // cudaErrorHostMemoryAlreadyRegistered
}
int cudaHostUnregister(void* memory) {
  const std::lock_guard lock(registered_mutex);
  return registered.erase(memory) > 0 ? 0 : 713;  // cudaErrorHostMemoryNotRegistered
}
int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void* stream) {
  stream_of(stream).add([=] { std::memcpy(to, from, bytes); });
  return 0;
}
int cudaStreamSynchronize(void* stream) {
  const auto mark = std::make_shared<Mark>();
  stream_of(stream).add([mark] { mark->reach(); });
  mark->wait();
  return 0;
}
int cudaDeviceGetAttribute(int* value, int attribute, int) {
  constexpr int kCapabilityMajor = 75;
  *value = attribute == kCapabilityMajor ? 9 : 0;
  return 0;
}
int cudaGetDeviceProperties(void* properties, int) {
  std::strcpy(static_cast<char*>(properties), "NVIDIA H100 80GB HBM3");
  return 0;
}
int cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = 0;
  return 0;
}
const char* cudaGetErrorString(int status) {
  return status == 101 ? "invalid device ordinal" : "an error of the stub";
}

}  // extern "C"
