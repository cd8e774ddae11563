// SPDX-License-Identifier: Apache-2.0
// One value of a job file on its way into the spec. Every read either stores a value of the right
// type or records what was expected and what was found; nothing throws.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/quantity.h"
#include "common/base/result.h"
#include "common/jobfile/job_yaml.h"

namespace hpctl {

// True for UTF-8 without control characters other than tab and newline: what may travel in JSON.
bool is_plain_text(std::string_view text);

// `a list`, `a mapping`, `nothing` or the quoted beginning of a scalar.
std::string describe_node(const YAML::Node& node);

class YamlValue {
 public:
  // `key_mark` locates the key; it stands in for a value that is empty.
  YamlValue(YAML::Node node, YAML::Mark key_mark, std::string path, const std::string& directory,
            std::vector<JobYamlProblem>& problems)
      : node_(std::move(node)),
        key_mark_(key_mark),
        path_(std::move(path)),
        directory_(directory),
        problems_(problems) {}

  // A wrong integer becomes 0, which fails its own range check but no check that depends on it.
  void read(int64_t& out);
  void read(int32_t& out);
  void read(uint64_t& out);
  void read(double& out);
  void read(bool& out);
  void read(std::string& out);
  // One of the words `all`, for which `set` is true; a list of such.
  using SetWord = std::function<bool(std::string_view)>;
  void read_word(const std::string& all, const SetWord& set);
  void read_word_list(const std::string& all, const SetWord& add);
  void read_duration(int64_t& ms);
  void read_path(std::string& out);  // relative ones count from the job file; "" stays ""
  void read_words(std::vector<std::string>& out);  // a list of texts; [] is one
  void read_paths(std::vector<std::string>& out);  // a list of them
  // A program and its arguments; a program named by a relative path counts from the job file.
  void read_command(std::vector<std::string>& out);
  // Likewise; where it is a Python that runs a script, the script, too.
  void read_workload_command(std::vector<std::string>& out);
  // {PATH: number, ...}, in the order of the file.
  void read_weighted_paths(std::vector<std::pair<std::string, double>>& out);
  void read_numbers(std::vector<double>& out);
  // One text, or a list of them.
  void read_texts(std::vector<std::string>& out);
  // "90", "30:00", "7-00:00:00" and the other forms of sbatch --time, or a duration -> minutes,
  // rounded up.
  void read_time_limit(int64_t& minutes);
  // "64G" and the other forms of sbatch --mem -> MiB.
  void read_memory(int64_t& mib);
  void read_environment(std::map<std::string, std::string>& out);

  bool is_word(std::string_view word) const { return node_.IsScalar() && node_.Scalar() == word; }
  const YAML::Node& node() const { return node_; }
  // A value inside this one, and the name of its key; "" = an item of a list.
  YamlValue at(const YAML::Node& node, const YAML::Mark& key_mark,
               const std::string& name = "") const {
    return {node, key_mark, name.empty() ? path_ : path_ + "." + name, directory_, problems_};
  }
  const std::string& path() const { return path_; }
  void fail(const std::string& message);
  void fail_expected(const std::string& expected) {
    fail("expected " + expected + ", found " + describe_node(node_));
  }

 private:
  std::string resolved(const std::string& path) const;
  void fail_at(const YAML::Mark& mark, const std::string& message);

  YAML::Node node_;
  YAML::Mark key_mark_;
  std::string path_;
  const std::string& directory_;
  std::vector<JobYamlProblem>& problems_;
};

}  // namespace hpctl
