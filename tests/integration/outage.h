// SPDX-License-Identifier: Apache-2.0
// Storage that fails, pauses or is slow for the processes of a test (storage_outage.c). Whoever
// includes this is linked with the definition STORAGE_OUTAGE_LIBRARY.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "common/base/check.h"
#include "common/base/fd.h"
#include "tests/integration/storage_outage.h"

namespace hpctl::testing {

// The page that every preloaded process maps.
class Outage {
 public:
  explicit Outage(const std::string& file) {
    const UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    HP_CHECK(fd.valid() && ::ftruncate(fd.get(), sizeof(StorageOutage)) == 0);
    void* const at =
        ::mmap(nullptr, sizeof(StorageOutage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    HP_CHECK(at != MAP_FAILED);
    page_ = static_cast<StorageOutage*>(at);
    ::setenv("STORAGE_OUTAGE", file.c_str(), 1);
    ::setenv("LD_PRELOAD", STORAGE_OUTAGE_LIBRARY, 1);
  }
  Outage(const Outage&) = delete;
  Outage& operator=(const Outage&) = delete;
  ~Outage() {
    end();
    ::unsetenv("LD_PRELOAD");
    ::unsetenv("STORAGE_OUTAGE");
    ::munmap(page_, sizeof(StorageOutage));
  }

  void of(const std::string& directory) { copy(directory, page_->directory); }
  void begin(int error, const std::string& program) {
    copy(program, page_->program);
    __atomic_store_n(&page_->error, error, __ATOMIC_RELEASE);
  }
  // Writes of `program` take as long as on storage of this speed.
  void slow_down(uint32_t kib_per_s, const std::string& program) {
    page_->kib_per_s = kib_per_s;
    begin(STORAGE_IS_SLOW, program);
  }
  void end() { __atomic_store_n(&page_->error, 0, __ATOMIC_RELEASE); }
  uint32_t calls() const { return __atomic_load_n(&page_->calls, __ATOMIC_RELAXED); }

 private:
  template <size_t kSize>
  static void copy(const std::string& text, char (&to)[kSize]) {
    HP_CHECK(text.size() < kSize);
    std::memcpy(to, text.c_str(), text.size() + 1);
  }
  StorageOutage* page_ = nullptr;
};

}  // namespace hpctl::testing
