// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/audit_log.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <utility>

#include "common/base/file.h"
#include "common/base/host.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/log.h"
#include "common/net/host_port.h"
#include "common/net/unix_address.h"
#include "common/process/user_name.h"

namespace hpctl {
namespace {

constexpr auto kLastLinesPatience = std::chrono::seconds(5);
// syslog(3)
constexpr int kAuthPriv = 10 << 3;
constexpr int kWarning = 4;
constexpr int kNotice = 5;

UniqueFd open_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// The machine, without the port that differs with each connection.
std::string origin_of(const AuditEntry& entry) {
  const auto peer = CallPeer::parse(entry.from);
  return peer ? peer->origin() : entry.from;
}

std::string cut(const std::string& text) {
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(begin, AuditLog::kMaxTextBytes);
}

// Control characters and what is no ASCII are escaped: a line is one line wherever it is shown.
std::string to_line(int64_t wall_ms, const AuditEntry& entry, uint64_t count,
                    const std::string& user) {
  nlohmann::ordered_json line = {{"time", format_wall_ms(wall_ms)}, {"call", entry.call}};
  if (entry.uid) line["uid"] = *entry.uid;
  if (!user.empty()) line["user"] = user;
  if (!entry.role.empty()) line["role"] = entry.role;
  if (!entry.from.empty()) line["from"] = entry.from;
  if (entry.job != 0) line["job"] = entry.job;
  if (!entry.arguments.empty()) line["arguments"] = entry.arguments;
  if (count != 1) line["count"] = count;
  line["outcome"] = entry.outcome;
  if (!entry.why.empty()) line["why"] = entry.why;
  return json_text(line, {.ascii = true});
}

}  // namespace

AuditLog::AuditLog(std::string home, std::string path, bool to_machine_log, const Clock& clock,
                   size_t max_file_bytes)
    : home_(std::move(home)),
      path_(std::move(path)),
      clock_(clock),
      max_file_bytes_(max_file_bytes),
      machine_log_(to_machine_log ? open_socket() : UniqueFd()) {}

void AuditLog::record(AuditEntry entry) {
  entry.arguments = cut(entry.arguments);
  entry.why = cut(entry.why);
  entry.from = cut(entry.from);
  const std::lock_guard lock(mutex_);
  if (entry.is_refused_call && !limit_.takes(origin_of(entry), clock_.monotonic_ms())) return;
  put({clock_.wall_ms(), std::move(entry)});
}

void AuditLog::tick() {
  const std::lock_guard lock(mutex_);
  put_counts(false);
}

void AuditLog::put_counts(bool all) {
  for (RefusalLimit::Count& count : limit_.take_counts(clock_.monotonic_ms(), all)) {
    AuditEntry entry;
    entry.call = "further refused calls";
    entry.from = std::move(count.origin);
    entry.outcome = "REFUSED";
    put({clock_.wall_ms(), std::move(entry), count.refusals});
  }
}

std::vector<std::string> AuditLog::stop() {
  {
    const std::lock_guard lock(mutex_);
    put_counts(true);
  }
  return lanes_.stop(kLastLinesPatience, TaskLanes::AtStop::kDone);
}

void AuditLog::put(Line line) {
  tell_machine(line);
  if (waiting_.size() == kMaxWaiting) {
    ++lost_;
    return;
  }
  if (waiting_.empty()) lanes_.post(path_, [this] { write(); });
  waiting_.push_back(std::move(line));
}

// Journald or syslogd may be away, or have too much to do: the file has the line as well.
void AuditLog::tell_machine(const Line& line) const {
  if (!machine_log_.valid()) return;
  const auto address = UnixAddress::of(system_path("/dev/log"));
  if (!address) return;
  const std::time_t now = line.wall_ms / 1000;
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 32> time{};
  std::strftime(time.data(), time.size(), "%b %e %H:%M:%S", &parts);
  const int level = line.entry.outcome == "OK" ? kNotice : kWarning;
  const std::string text = "<" + std::to_string(kAuthPriv | level) + ">" + time.data() +
                           " hpcontroller[" + std::to_string(::getpid()) +
                           "]: audit: " + to_line(line.wall_ms, line.entry, line.count, "");
  (void)::sendto(machine_log_.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                 address->get(), address->size());
}

// On the lane's thread: what is waited for here is the file system, and who a uid is.
void AuditLog::write() {
  std::deque<Line> lines;
  uint64_t lost = 0;
  {
    const std::lock_guard lock(mutex_);
    lines.swap(waiting_);
    lost = std::exchange(lost_, 0);
  }
  std::string text;
  for (const Line& line : lines) {
    const std::string user = line.entry.uid ? user_name(std::to_string(*line.entry.uid)) : "";
    text += to_line(line.wall_ms, line.entry, line.count, user) + "\n";
  }
  if (lost > 0) {
    AuditEntry entry;
    entry.call = "lines lost";
    entry.outcome = "DATA_LOSS";
    entry.why = "the file could not take them in time";
    text += to_line(clock_.wall_ms(), entry, lost, "") + "\n";
  }
  const Outcome written = append(text);
  if (written.ok()) {
    has_complained_ = false;
    return;
  }
  if (!std::exchange(has_complained_, true)) {
    log_error("the audit log is not written: " + written.error().message);
  }
  const std::lock_guard lock(mutex_);
  lost_ += lines.size() + lost;
}

Outcome AuditLog::append(const std::string& text) const {
  HP_TRY(make_directories_below(home_, path_.substr(0, path_.rfind('/')), 0700));
  struct stat st {};
  if (::lstat(path_.c_str(), &st) == 0 && st.st_size > 0 &&
      static_cast<size_t>(st.st_size) + text.size() > max_file_bytes_) {
    HP_TRY(rotate());
  }
  const UniqueFd file(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return errno_error("cannot append to " + path_);
  HP_TRY(write_all(file.get(), text, path_));
  return ::fdatasync(file.get()) == 0 ? Outcome(Ok{}) : errno_error("cannot sync " + path_);
}

Outcome AuditLog::rotate() const {
  for (int i = kOlderFiles; i > 0; --i) {
    const std::string from = i == 1 ? path_ : path_ + "." + std::to_string(i - 1);
    const std::string to = path_ + "." + std::to_string(i);
    if (::rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT) {
      return errno_error("cannot rename " + from);
    }
  }
  return Ok{};
}

}  // namespace hpctl
