// SPDX-License-Identifier: Apache-2.0
#include "hpctl/audit_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/net/host_port.h"
#include "common/process/user_name.h"

namespace hpctl {
namespace {

constexpr int kOlderFiles = 9;  // more than are kept (AuditLog::kOlderFiles)
constexpr size_t kMaxFileBytes = 16U << 20;
constexpr JsonLimits kLine{16U << 10, 4, 64};

// Of the methods in controller/access/rules.cc, and what a log says of itself.
const std::map<std::string_view, const char*>& phrases() {
  static const std::map<std::string_view, const char*> table = {
      {"Submit", "submit a job"},
      {"Cancel", "cancel the job"},
      {"Inject", "inject a fault"},
      {"RemoveJob", "remove the job"},
      {"OpenPage", "get a link to the status page"},
      {"QuarantineNode", "put a node into quarantine"},
      {"ReleaseNode", "release a node from quarantine"},
      {"RecoverNode", "have a node rebooted or replaced"},
      {"GetJob", "look at the job"},
      {"ListJobs", "list jobs"},
      {"ListNodes", "list nodes"},
      {"WatchEvents", "read the history"},
      {"Why", "ask why"},
      {"GetVersion", "ask for the version"},
      {"Connect", "register a node"},
      {"Admit", "have the job's controller run here"},
      {"OpenJob", "open somebody's job"},
      {"a connection", "connect to the Unix socket"},
      {"further refused calls", "more calls like those before"},
      {"lines lost", "lines that are not here"},
  };
  return table;
}

bool is_refusal(const std::string& outcome) {
  return outcome == "PERMISSION_DENIED" || outcome == "UNAUTHENTICATED" || outcome == "REFUSED";
}

std::optional<AuditLine> line_from(std::string_view text) {
  // The order of the keys is that of the file.
  if (!parse_json_or_discard(text, kLine).is_object()) return std::nullopt;
  AuditLine line{0, nlohmann::ordered_json::parse(text)};
  line.wall_ms = parse_wall_ms(line.text("time"));
  if (line.wall_ms == 0 || line.text("call").empty() || line.text("outcome").empty()) {
    return std::nullopt;
  }
  return line;
}

AuditLines lines_from(std::string_view text) {
  AuditLines found;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (auto line = line_from(text.substr(begin, end - begin))) {
      found.lines.push_back(std::move(*line));
    } else {
      ++found.damaged;
    }
    begin = end + 1;
  }
  return found;
}

}  // namespace

std::string AuditLine::text(const char* key) const {
  const auto found = keys.find(key);
  return found != keys.end() && found->is_string() ? found->get<std::string>() : "";
}

uint64_t AuditLine::number(const char* key) const {
  const auto found = keys.find(key);
  return found != keys.end() ? whole_number<uint64_t>(*found).value_or(0) : 0;
}

std::string AuditLine::who() const {
  const auto uid = keys.find("uid");
  if (uid == keys.end() || !uid->is_number_unsigned()) return "";
  if (std::string name = text("user"); !name.empty()) return name;
  return std::to_string(uid->get<uint64_t>());
}

bool AuditLine::is_of(const std::string& name_or_uid) const {
  const auto uid = keys.find("uid");
  if (uid == keys.end() || !uid->is_number_unsigned()) return false;
  const std::string digits = std::to_string(uid->get<uint64_t>());
  return name_or_uid == digits || name_or_uid == text("user") || name_or_uid == user_name(digits);
}

void AuditLines::append(AuditLines others) {
  lines.insert(lines.end(), std::make_move_iterator(others.lines.begin()),
               std::make_move_iterator(others.lines.end()));
  damaged += others.damaged;
}

void AuditLines::sort() {
  std::stable_sort(lines.begin(), lines.end(),
                   [](const AuditLine& a, const AuditLine& b) { return a.wall_ms < b.wall_ms; });
}

// The newest file first: one that is renamed meanwhile is met again under its next name, and known.
Result<AuditLines> read_audit_log(const std::string& path) {
  std::vector<AuditLines> newest_first;
  std::set<std::pair<dev_t, ino_t>> read;
  for (int older = 0; older <= kOlderFiles; ++older) {
    const std::string name = older == 0 ? path : path + "." + std::to_string(older);
    // Neither a link nor a pipe that waits for a writer: the directory may be somebody else's.
    const UniqueFd file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file.valid() && errno == ENOENT) continue;
    if (!file.valid()) return errno_error("cannot open " + name);
    struct stat st {};
    if (::fstat(file.get(), &st) != 0 || !S_ISREG(st.st_mode)) {
      return Error{ErrorCode::kInvalidArgument, name + " is not a file"};
    }
    if (!read.emplace(st.st_dev, st.st_ino).second) continue;
    HP_TRY_ASSIGN(const std::string text, read_all(file.get(), name, kMaxFileBytes));
    newest_first.push_back(lines_from(text));
  }
  if (newest_first.empty()) return Error{ErrorCode::kNotFound, "there is no " + path};
  AuditLines all;
  for (auto file = newest_first.rbegin(); file != newest_first.rend(); ++file) {
    all.append(std::move(*file));
  }
  return all;
}

std::string what_was_asked(const AuditLine& line) {
  const std::string call = line.text("call");
  const auto phrase = phrases().find(call);
  std::string words = phrase == phrases().end() ? call : phrase->second;
  if (const uint64_t count = line.number("count"); count > 0) {
    words = std::to_string(count) + " " + words;
  }
  if (const uint64_t job = line.number("job"); job > 0)
    words += " (job " + std::to_string(job) + ")";
  if (const std::string arguments = line.text("arguments"); !arguments.empty()) {
    words += ": " + arguments;
  }
  if (const std::string why = line.text("why"); !why.empty()) words += "; " + why;
  return words;
}

std::string what_became_of_it(const AuditLine& line) {
  if (line.was_carried_out()) return "done";
  return is_refusal(line.text("outcome")) ? "refused" : "failed";
}

std::string where_from(const AuditLine& line) {
  const std::string from = line.text("from");
  // Of a machine whose further calls were counted there is no port.
  for (const std::string& peer : {from, from + ":0"}) {
    if (const auto caller = CallPeer::parse(peer)) return caller->end.host;
  }
  return from;
}

}  // namespace hpctl
