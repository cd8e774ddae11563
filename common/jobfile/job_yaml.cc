// SPDX-License-Identifier: Apache-2.0
// Three passes. The text is parsed by yaml-cpp (syntax errors end here, with a line). Then every
// mapping is walked beside the key table: unknown and repeated keys are reported in the order of
// the file, known ones are read in the order of the table. Values that are given beside the file
// replace the file's on this walk. Last, find_problems() checks ranges and consistency, and each
// finding is traced back to the line of its key; a finding that only follows from a mistake already
// reported is dropped.
#include "common/jobfile/job_yaml.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "common/jobfile/foreign_words.h"
#include "common/jobfile/job_yaml_keys.h"
#include "common/jobfile/nearest_word.h"
#include "common/jobfile/python_environment.h"
#include "common/jobfile/yaml_text.h"
#include "common/jobfile/yaml_value.h"

namespace hpctl {
namespace {

constexpr const char* kModelFrom = "workload.train.model.from";

YAML::Mark start_of_file() { return YAML::Mark(); }

// `outer` is `inner` or one of the sections around it.
bool contains_key(const std::string& outer, const std::string& inner) {
  return inner == outer || inner.starts_with(outer + ".");
}

class JobYamlReader {
 public:
  JobYamlReader(const std::string& directory, const ReadModel& read_model)
      : directory_(directory), read_model_(read_model) {}

  JobYaml read(const YAML::Node& root, const std::vector<GivenValue>& given) {
    if (!root.IsMap()) {
      add(root.Mark(), "",
          "expected keys such as \"name: my-job\", found " + describe_node(root) +
              "; `hpctl init` writes a job file to begin with");
    } else {
      for (const GivenValue& value : given) take_given(value);
      read_section(root, "");
      add_spec_problems();
    }
    std::stable_sort(problems_.begin(), problems_.end(), [](const auto& a, const auto& b) {
      return std::tie(a.line, a.column) < std::tie(b.line, b.column);
    });
    JobYaml result;
    if (problems_.empty()) result.spec = std::move(spec_);
    result.problems = std::move(problems_);
    return result;
  }

 private:
  struct Place {
    YAML::Mark mark;  // of the key
    bool is_section = false;
    std::string origin;  // "" = the file
  };
  struct Entry {
    YAML::Mark key_mark;
    YAML::Node value;
    std::string origin;  // "" = the file
  };

  void add(const YAML::Mark& mark, const std::string& key, const std::string& message) {
    const YAML::Mark at = mark.line < 0 ? start_of_file() : mark;
    problems_.push_back(JobYamlProblem{at.line + 1, at.column + 1, key, message});
  }

  // What `read` finds wrong has no line, but the origin of the value; "" = the file, with its line.
  template <typename Read>
  void read_from(const std::string& origin, const Read& read) {
    const size_t before = problems_.size();
    read();
    if (origin.empty()) return;
    for (size_t i = before; i < problems_.size(); ++i) {
      JobYamlProblem& problem = problems_[i];
      if (problem.origin.empty()) problem = {0, 0, problem.key, problem.message, origin};
    }
  }

  // A value whose key is unknown, or whose text is no YAML, is reported and left out.
  void take_given(const GivenValue& value) {
    read_from(value.origin, [&] {
      if (!is_known_path(value.key)) return;
      // Of a section it would be all defaults, where a variable of the shell was not set.
      if (value.text.find_first_not_of(" \t\n") == std::string::npos) {
        return add(start_of_file(), value.key, "the value is empty; write an empty text as ''");
      }
      try {
        given_.erase(value.key);
        given_.emplace(value.key, Entry{start_of_file(), YAML::Load(value.text), value.origin});
      } catch (const YAML::Exception& e) {
        add(start_of_file(), value.key, explain_syntax(e.msg));
      }
    });
  }

  // Reports the first name on the path that is no key.
  bool is_known_path(const std::string& path) {
    std::string section;
    for (size_t begin = 0; begin <= path.size();) {
      const size_t end = std::min(path.find('.', begin), path.size());
      const std::string name = path.substr(begin, end - begin);
      const auto known = children(section);
      if (known.empty() && has_own_names(section) && end == path.size() && !name.empty()) {
        return true;
      }
      if (known.empty()) {
        add(start_of_file(), section, "no key is below this one; give its whole value");
        return false;
      }
      if (!has_name(known, name)) {
        add_unknown(YAML::Node(name), section, known);
        return false;
      }
      section = path.substr(0, end);
      begin = end + 1;
    }
    return true;
  }

  // Puts what is given for keys of `section`, or below them, in the place of what the file has.
  void take_given(const std::string& section, const std::vector<const JobYamlKey*>& known,
                  std::map<std::string, Entry>& entries) const {
    for (const JobYamlKey* key : known) {
      const std::string path = join_path(section, std::string(key->name()));
      const std::string name(key->name());
      const auto given = given_.lower_bound(path);
      if (given == given_.end() || !contains_key(path, given->first)) continue;
      if (given->first == path) {
        entries.erase(name);  // assigned to, a node would change wherever an alias refers to it
        entries.emplace(name, given->second);
      } else {
        entries.emplace(name, Entry{start_of_file(), YAML::Node(), given->second.origin});
      }
      if (has_own_names(path)) add_own_names(path, entries.at(name));
    }
  }

  // Adds what is given for names below the mapping at `path`: env.set.NAME. Something else than a
  // mapping stays as it is, to be reported.
  void add_own_names(const std::string& path, Entry& entry) const {
    for (auto given = given_.upper_bound(path);
         given != given_.end() && contains_key(path, given->first); ++given) {
      if (!entry.value.IsMap() && !entry.value.IsNull()) return;
      YAML::Node names = entry.value.IsMap() ? YAML::Clone(entry.value) : YAML::Node();
      names[given->first.substr(path.size() + 1)] = given->second.value;
      entry = Entry{entry.key_mark, names, given->second.origin};
    }
  }

  static std::string join_path(const std::string& section, const std::string& name) {
    return section.empty() ? name : section + "." + name;
  }

  static bool has_name(const std::vector<const JobYamlKey*>& keys, const std::string& name) {
    return std::any_of(keys.begin(), keys.end(),
                       [&](const JobYamlKey* key) { return key->name() == name; });
  }

  // The keys below this one are names of the user's.
  static bool has_own_names(const std::string& path) {
    return std::any_of(job_yaml_keys().begin(), job_yaml_keys().end(), [&](const JobYamlKey& key) {
      return key.path == path && key.type == "mapping";
    });
  }

  // Known keys of the table under `section`, in its order.
  static std::vector<const JobYamlKey*> children(const std::string& section) {
    std::vector<const JobYamlKey*> found;
    for (const JobYamlKey& key : job_yaml_keys()) {
      if (key.parent() == section) found.push_back(&key);
    }
    return found;
  }

  void read_section(const YAML::Node& node, const std::string& section) {
    // "checkpoint:" with nothing below means all defaults.
    if (!node.IsMap() && !node.IsNull()) {
      add(node.Mark(), section, "expected a section with keys, found " + describe_node(node));
      return;
    }
    const auto known = children(section);
    std::map<std::string, Entry> entries;
    for (const auto& pair : node) collect(pair.first, pair.second, section, known, entries);
    take_given(section, known, entries);
    for (const JobYamlKey* key : known) {
      const auto entry = entries.find(std::string(key->name()));
      if (entry != entries.end()) read_key(*key, entry->second);
    }
  }

  void collect(const YAML::Node& name_node, const YAML::Node& value, const std::string& section,
               const std::vector<const JobYamlKey*>& known, std::map<std::string, Entry>& entries) {
    if (!name_node.IsScalar()) {
      add(name_node.Mark(), section, "expected a key, found " + describe_node(name_node));
      return;
    }
    const std::string name = name_node.Scalar();
    if (!has_name(known, name)) {
      add_unknown(name_node, section, known);
    } else if (!entries.emplace(name, Entry{name_node.Mark(), value, ""}).second) {
      add(name_node.Mark(), join_path(section, name),
          "this key is given twice; the first is in line " +
              std::to_string(entries.at(name).key_mark.line + 1));
    }
  }

  void add_unknown(const YAML::Node& name_node, const std::string& section,
                   const std::vector<const JobYamlKey*>& known) {
    const std::string name = name_node.Scalar();
    std::vector<std::string> names;
    for (const JobYamlKey* key : known) names.emplace_back(key->name());
    std::string hint;
    if (section == "checkpoint" && name == "disk_full_limit") {
      hint = "; limits.storage takes its place, and bounds all waits for storage";
    } else if (const ForeignKey* foreign = find_foreign_key(name)) {
      hint = describe_foreign(*foreign);
      if (!foreign->key.empty()) suggested_.insert(std::string(foreign->key));
    } else if (const auto nearest = nearest_word(name, names)) {
      hint = "; did you mean \"" + *nearest + "\"?";
      suggested_.insert(join_path(section, *nearest));
    } else {
      for (const JobYamlKey& key : job_yaml_keys()) {
        if (key.name() != name || key.kind == KeyKind::kUnavailable) continue;
        hint = key.path == name ? "; it belongs into the first column: is the indentation right?"
                                : "; did you mean " + std::string(key.path) + "?";
        suggested_.insert(std::string(key.path));
        break;
      }
    }
    if (hint.empty()) {
      for (const JobYamlKey* key : known) {
        if (key->kind == KeyKind::kUnavailable) continue;
        hint += (hint.empty() ? "" : ", ") + std::string(key->name());
      }
      hint = "; expected one of " + hint;
    }
    add(name_node.Mark(), section, "unknown key " + describe_node(name_node) + hint);
  }

  static std::string describe_foreign(const ForeignKey& foreign) {
    const std::string note(foreign.note);
    if (foreign.key.empty()) return "; " + note;
    return "; here it is " + std::string(foreign.key) + (note.empty() ? "" : ": " + note);
  }

  void read_key(const JobYamlKey& key, const Entry& entry) {
    read_from(entry.origin, [&] { read_value(key, entry); });
  }

  void read_value(const JobYamlKey& key, const Entry& entry) {
    const std::string path(key.path);
    const bool is_section = key.kind == KeyKind::kSection && !entry.value.IsScalar();
    // A problem of a value is shown at the value.
    const bool has_value = entry.value.IsScalar() && entry.value.Mark().line >= 0;
    places_[path] =
        Place{has_value ? entry.value.Mark() : entry.key_mark, is_section, entry.origin};
    YamlValue value(entry.value, entry.key_mark, path, directory_, problems_);
    if (key.kind == KeyKind::kUnavailable) {
      add(entry.key_mark, path, "not available yet in this version; remove this key");
    } else if (is_section) {
      if (key.enter != nullptr) key.enter(spec_);
      read_section(entry.value, path);
    } else if (key.field != nullptr) {
      read_train_field(*key.field, value, spec_);
    } else if (key.read != nullptr) {
      key.read(value, spec_);
      if (path == kModelFrom) take_model(value);
      // `nodes: 2` in the file, and nodes.spares given.
      if (key.kind == KeyKind::kSection) read_section(YAML::Node(), path);
    } else {
      value.fail_expected("a section with keys");
    }
  }

  // The dimensions that follow in the file override these.
  void take_model(YamlValue& value) {
    const std::string& from = spec_.train->model_from;
    if (from.empty()) return;
    if (!spec_.train->model.preset.empty()) {
      return value.fail("a preset and a directory both say which model it is; leave one out");
    }
    auto model =
        read_model_
            ? read_model_(from)
            : Result<ModelSpec>(Error{ErrorCode::kInvalidArgument, "no model can be read here"});
    if (!model.ok()) value.fail(model.error().message);
    // After a mistake any dimensions will do: only the directory should be reported.
    spec_.train->model = model.ok() ? *model : *model_preset("tiny");
  }

  bool follows_from_reported(const std::string& key) const {
    return suggested_.contains(key) ||
           std::any_of(problems_.begin(), problems_.end(), [&](const JobYamlProblem& p) {
             return !p.key.empty() && p.message.find("unknown key") == std::string::npos &&
                    (contains_key(p.key, key) || contains_key(key, p.key));
           });
  }

  void add_spec_problems() {
    if (spec_.min_nodes == 0) spec_.min_nodes = spec_.nodes;
    std::vector<JobYamlProblem> found;
    std::vector<SpecProblem> all = find_problems(spec_);
    const bool is_known_kind = std::none_of(
        all.begin(), all.end(), [](const SpecProblem& p) { return p.key == "env.kind"; });
    if (is_known_kind) {
      if (const auto problem = choose_environment(spec_, directory_)) all.push_back(*problem);
    }
    for (const SpecProblem& problem : all) {
      if (follows_from_reported(problem.key)) continue;
      JobYamlProblem located = locate(problem);
      const bool repeated = std::any_of(found.begin(), found.end(), [&](const JobYamlProblem& p) {
        return p.key == located.key;
      });
      if (!repeated) found.push_back(std::move(located));
    }
    problems_.insert(problems_.end(), found.begin(), found.end());
  }

  // The line of the key, or, for a missing key, of the section where it should be. For a section
  // that is missing as a whole, only the section is reported.
  JobYamlProblem locate(const SpecProblem& problem) const {
    std::string key = problem.key;
    std::string present = problem.key;
    while (!present.empty() && !places_.contains(present)) {
      key = present;
      const size_t dot = present.rfind('.');
      present = dot == std::string::npos ? "" : present.substr(0, dot);
    }
    const Place place = present.empty() ? Place{start_of_file(), true, ""} : places_.at(present);
    JobYamlProblem result{place.mark.line + 1, place.mark.column + 1, problem.key, problem.message};
    if (!place.origin.empty()) result = {0, 0, problem.key, problem.message, place.origin};
    if (present != problem.key && place.is_section && !has_preset(key)) {
      result.key = key;
      result.message =
          "this key is required" +
          (key == problem.key && has_default(key) ? ": " + problem.message : expectation(key));
    }
    return result;
  }

  // Not in the file, but not missing either: its preset gave the value that does not fit.
  bool has_preset(const std::string& path) const {
    return places_.contains("workload.train.model.preset") &&
           std::any_of(job_yaml_keys().begin(), job_yaml_keys().end(), [&](const JobYamlKey& key) {
             return key.path == path && key.initial == "of the preset";
           });
  }

  // Then it is required here for a reason, which the problem tells.
  static bool has_default(const std::string& path) {
    return std::any_of(job_yaml_keys().begin(), job_yaml_keys().end(), [&](const JobYamlKey& key) {
      return key.path == path && !key.initial.empty() && key.initial != "required";
    });
  }

  static std::string expectation(const std::string& path) {
    for (const JobYamlKey& key : job_yaml_keys()) {
      if (key.path != path) continue;
      std::string text = ": expected " + std::string(key.type);
      if (!key.range.empty()) text += ", " + std::string(key.range);
      return text;
    }
    return "";
  }

  const std::string& directory_;
  const ReadModel& read_model_;
  JobSpec spec_;
  std::vector<JobYamlProblem> problems_;
  std::map<std::string, Entry> given_;   // by path
  std::map<std::string, Place> places_;  // keys that are in the file, or given
  std::set<std::string> suggested_;      // meant by an unknown key, so not missing as well
};

constexpr YamlKind kJobFile = {"a job file", "one job", "hpctl submit --help"};

}  // namespace

JobYaml parse_job_yaml(std::string_view text, const std::string& directory,
                       const std::vector<GivenValue>& given, const ReadModel& read_model) {
  JobYaml result;
  const auto problem = read_yaml(text, kJobFile, [&](const YAML::Node& document) {
    result = JobYamlReader(directory, read_model).read(document, given);
  });
  if (problem) result = {std::nullopt, {*problem}};
  return result;
}

JobYaml load_job_yaml(const std::string& path, const std::vector<GivenValue>& given,
                      const ReadModel& read_model) {
  const YamlFile file = read_yaml_file(path, kJobFile);
  if (file.problem) return {std::nullopt, {*file.problem}};
  return parse_job_yaml(file.text, file.directory, given, read_model);
}

std::string describe_problems(const std::string& file, const std::vector<JobYamlProblem>& problems,
                              size_t limit) {
  std::string text;
  for (size_t i = 0; i < std::min(limit, problems.size()); ++i) {
    const JobYamlProblem& p = problems[i];
    text += (p.origin.empty() ? file : p.origin) + ":";
    if (p.line > 0) text += std::to_string(p.line) + ":" + std::to_string(p.column) + ":";
    const bool is_named = p.key.empty() || p.origin.ends_with(p.key);
    text += " " + (is_named ? "" : p.key + ": ") + p.message + "\n";
  }
  if (problems.size() > limit) {
    text += file + ": and " + std::to_string(problems.size() - limit) + " more\n";
  }
  return text;
}

}  // namespace hpctl
