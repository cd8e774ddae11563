// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/probes/kernel_log.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/host.h"

namespace hpctl::agent {
namespace {

constexpr size_t kMaxLogBytes = 8U << 20;
constexpr int64_t kMaxUptimeS = 1'000'000'000;  // 31 years

// A device gives one record per read() and EAGAIN at the end; a file of a test's all at once.
Result<std::string> read_records(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) return errno_error("cannot open " + path);
  std::string text;
  std::array<char, 16384> buffer;
  while (text.size() < kMaxLogBytes) {
    const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n == 0 || (n < 0 && errno == EAGAIN)) break;
    if (n < 0 && (errno == EPIPE || errno == EINTR)) continue;  // records were overwritten
    if (n < 0) return errno_error("cannot read " + path);
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  return text;
}

// Whole seconds; the file has a fraction behind them.
Result<int64_t> uptime_s() {
  const std::string path = system_path("/proc/uptime");
  HP_TRY_ASSIGN(const std::string text, read_file(path, 256));
  int64_t seconds = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (parsed.ec == std::errc() && seconds >= 0 && seconds <= kMaxUptimeS) return seconds;
  return Error{ErrorCode::kDataLoss, path + " does not begin with seconds since the boot"};
}

}  // namespace

Result<std::vector<std::string>> recent_kernel_messages(int64_t age_s) {
  HP_TRY_ASSIGN(const int64_t up_s, uptime_s());
  const int64_t oldest_us = (up_s - age_s) * 1'000'000;
  HP_TRY_ASSIGN(const std::string text, read_records(system_path("/dev/kmsg")));
  std::vector<std::string> messages;
  // "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;MESSAGE", then lines of details with a leading space.
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t message = line.find(';');
    size_t comma = line.find(',');
    if (comma != std::string::npos) comma = line.find(',', comma + 1);
    if (line.starts_with(" ") || message == std::string::npos || comma == std::string::npos ||
        comma > message) {
      continue;
    }
    if (std::atoll(line.c_str() + comma + 1) < oldest_us) continue;
    messages.push_back(line.substr(message + 1));
  }
  return messages;
}

}  // namespace hpctl::agent
