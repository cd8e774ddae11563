// SPDX-License-Identifier: Apache-2.0
// What people copy: the files of examples/ and the job files and keys that the pages show, read
// with the real readers. A page and an example cannot drift apart, nor from the keys that there
// are.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/jobfile/job_yaml.h"
#include "hpctl/chaos_plan.h"

namespace hpctl {
namespace {

namespace fs = std::filesystem;

fs::path source() { return std::getenv("HPCTL_SOURCE"); }

std::string text_of(const fs::path& path) {
  const auto text = read_file(path.string());
  EXPECT_TRUE(text.ok()) << text.error().message;
  return text.ok() ? *text : "";
}

// README.md, and docs/*.md without what is below.
std::vector<fs::path> pages() {
  std::vector<fs::path> result = {source() / "README.md"};
  for (const auto& entry : fs::directory_iterator(source() / "docs")) {
    if (entry.path().extension() == ".md") result.push_back(entry.path());
  }
  return result;
}

// A plan of `hpctl chaos` says so by its name; every other file is a job.
bool is_plan(const fs::path& path) { return path.filename().string().starts_with("chaos-"); }

std::vector<fs::path> example_jobs() {
  std::vector<fs::path> jobs;
  for (const auto& entry : fs::recursive_directory_iterator(source() / "examples")) {
    if (entry.path().extension() == ".yaml" && !is_plan(entry.path())) {
      jobs.push_back(entry.path());
    }
  }
  return jobs;
}

struct ShownJob {
  std::string page;
  std::string text;
};

// Fenced YAML that begins as a job file does.
std::vector<ShownJob> shown_jobs(const fs::path& page) {
  std::vector<ShownJob> jobs;
  std::istringstream lines(text_of(page));
  std::string block;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (!inside) {
      inside = line == "```yaml";
      block.clear();
    } else if (line == "```") {
      inside = false;
      if (block.starts_with("name: ")) jobs.push_back({page.filename().string(), block});
    } else {
      block += line + "\n";
    }
  }
  return jobs;
}

// An example without the comment that it opens with.
std::string without_opening_comment(const std::string& text) {
  size_t at = 0;
  while (at < text.size() && text[at] == '#') at = text.find('\n', at) + 1;
  return text.substr(at);
}

TEST(Examples, EveryJobFileIsRead) {
  const auto jobs = example_jobs();
  EXPECT_GE(jobs.size(), 8U);
  std::map<std::string, fs::path> names;
  for (const fs::path& path : jobs) {
    const JobYaml job = load_job_yaml(path.string());
    EXPECT_EQ(describe_problems(path.string(), job.problems), "");
    if (!job.spec) continue;
    EXPECT_TRUE(names.emplace(job.spec->name, path).second)
        << path << ": " << names[job.spec->name] << " has this name, too";
  }
}

TEST(Examples, EveryPlanIsRead) {
  int plans = 0;
  for (const auto& entry : fs::recursive_directory_iterator(source() / "examples")) {
    if (!is_plan(entry.path())) continue;
    ++plans;
    const auto plan = load_chaos_plan(entry.path().string());
    EXPECT_TRUE(plan.ok()) << plan.error().message;
  }
  EXPECT_GE(plans, 1);
}

TEST(Pages, EveryJobFileThatTheyShowIsRead) {
  int shown = 0;
  for (const fs::path& page : pages()) {
    for (const ShownJob& job : shown_jobs(page)) {
      ++shown;
      EXPECT_EQ(describe_problems(job.page, parse_job_yaml(job.text, "/jobs").problems), "");
    }
  }
  EXPECT_GE(shown, 5);
}

TEST(Pages, AnAfterOfTheMigrationGuideIsAnExample) {
  std::map<std::string, std::string> examples;
  for (const fs::path& path : example_jobs()) {
    const std::string text = without_opening_comment(text_of(path));
    examples[text.substr(0, text.find('\n'))] = text;
  }
  const auto shown = shown_jobs(source() / "docs/migrate.md");
  EXPECT_GE(shown.size(), 5U);
  for (const ShownJob& job : shown) {
    EXPECT_EQ(job.text, examples[job.text.substr(0, job.text.find('\n'))]);
  }
}

// `recovery.standbys` and the like, in backticks and with nothing else in them.
TEST(Pages, TheGuideToInstallationShowsTheDockerfile) {
  const std::string file = text_of(source() / "deploy/container/Dockerfile");
  const std::string shown = "```dockerfile\n" + without_opening_comment(file) + "```\n";
  EXPECT_NE(text_of(source() / "docs/install.md").find(shown), std::string::npos);
}

TEST(Pages, KeysThatTheyNameAreThere) {
  static const std::regex key(
      "`((?:slurm|env|nodes|workload|checkpoint|recovery|limits|hooks|notify|"
      "health|debug)\\.[a-z_.]+)`");
  const std::string reference = job_yaml_reference();
  int named = 0;
  for (const fs::path& page : pages()) {
    const std::string text = text_of(page);
    for (std::sregex_iterator k(text.begin(), text.end(), key), end; k != end; ++k) {
      ++named;
      EXPECT_NE(reference.find("| `" + (*k)[1].str() + "` |"), std::string::npos)
          << page.filename() << " names the key " << (*k)[1] << ", and there is none";
    }
  }
  EXPECT_GE(named, 50);
}

}  // namespace
}  // namespace hpctl
