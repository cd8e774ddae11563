// SPDX-License-Identifier: Apache-2.0
#include "hpctl/migrate/job_text.h"

#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "common/jobfile/job_yaml.h"
#include "common/jobfile/job_yaml_keys.h"

namespace hpctl::migrate {
namespace {

// One key with its lines; a mapping or a list has several.
struct Entry {
  std::string yaml;  // "" = the lines below
  std::string source;
  std::vector<std::pair<std::string, std::string>> below;  // a line and its source
};
using Entries = std::map<std::string, Entry>;

Entries entries_of(const Draft& draft) {
  Entries entries;
  for (const auto& [key, value] : draft.values()) entries[key] = {value.yaml, value.source, {}};
  for (const auto& [name, value] : draft.variables()) {
    entries["env.set"].below.emplace_back(name + ": " + yaml_text(value.yaml), value.source);
  }
  for (const auto& [line, source] : draft.hooks()) {
    entries["hooks.pre"].below.emplace_back("- " + yaml_text(line), source);
  }
  if (!draft.command().empty()) {
    Entry& command = entries["workload.command"];
    command.source = draft.command_source();
    for (const std::string& word : draft.command()) {
      command.below.emplace_back("- " + yaml_text(word), "");
    }
  }
  return entries;
}

std::string commented(const std::string& line, const std::string& source) {
  if (source.empty()) return line + "\n";
  std::string comment;
  for (const char c : source) comment += c == '\n' || c == '\r' ? ' ' : c;
  constexpr size_t kColumn = 48;
  return line + std::string(line.size() + 2 < kColumn ? kColumn - line.size() : 2, ' ') + "# " +
         comment + "\n";
}

// In the order of the table of keys, sections opened as they come.
class Writer {
 public:
  explicit Writer(const Entries& entries) : entries_(entries) {}

  std::string write() {
    for (const JobYamlKey& key : job_yaml_keys()) {
      const auto entry = entries_.find(std::string(key.path));
      if (entry != entries_.end()) put(entry->first, entry->second);
    }
    return out_.str();
  }

 private:
  void put(const std::string& path, const Entry& entry) {
    std::string indent;
    size_t begin = 0;
    for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
      const std::string section = path.substr(0, dot);
      if (opened_.insert(section).second) {
        out_ << indent << path.substr(begin, dot - begin) << ":\n";
      }
      indent += "  ";
      begin = dot + 1;
    }
    const std::string name = path.substr(begin);
    if (entry.below.empty()) {
      out_ << commented(indent + name + ": " + entry.yaml, entry.source);
      return;
    }
    out_ << commented(indent + name + ":", entry.source);
    for (const auto& [line, source] : entry.below) out_ << commented(indent + "  " + line, source);
  }

  const Entries& entries_;
  std::set<std::string> opened_;
  std::ostringstream out_;
};

std::optional<std::string> resolved(const std::string& text, const std::string& directory) {
  const JobYaml job = parse_job_yaml(text, directory);
  return job.spec ? std::optional<std::string>(to_yaml(*job.spec)) : std::nullopt;
}

// A key is left out where the job is the same without it.
Entries without_defaults(Entries entries, const std::string& directory) {
  const auto whole = resolved(Writer(entries).write(), directory);
  if (!whole) return entries;
  std::vector<std::string> keys;
  for (const auto& [key, entry] : entries) keys.push_back(key);
  for (const std::string& key : keys) {
    Entries fewer = entries;
    fewer.erase(key);
    if (resolved(Writer(fewer).write(), directory) == whole) entries = std::move(fewer);
  }
  return entries;
}

std::string source_of(const Entries& entries, const std::string& key) {
  const auto entry = entries.find(key);
  return entry == entries.end() || entry->second.source.empty() ? ""
                                                                : " (" + entry->second.source + ")";
}

}  // namespace

JobText write_job(const Draft& draft, const std::string& directory, const std::string& heading) {
  const Entries entries = without_defaults(entries_of(draft), directory);
  JobText job;
  job.text = "# " + heading + "\n" + Writer(entries).write();
  JobYaml parsed = parse_job_yaml(job.text, directory);
  for (const JobYamlProblem& problem : parsed.problems) {
    job.problems.push_back((problem.key.empty() ? "" : problem.key + ": ") + problem.message +
                           source_of(entries, problem.key));
  }
  job.spec = std::move(parsed.spec);
  return job;
}

}  // namespace hpctl::migrate
