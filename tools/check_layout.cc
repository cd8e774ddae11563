// SPDX-License-Identifier: Apache-2.0
// The build's own check of the house: what a linter cannot say. Run by ctest as `layout`.
//
//   check_layout ROOT
//
// Includes are written from the root, so an include line is an edge of the dependency graph, and
// some are forbidden; folders form no circle; the JSON library has one header of ours before it,
// and one function that writes it. Cores are pure. Every source is named in a CMakeLists.txt above
// it, opens with its licence line and keeps to the size limits. Every test that
// docs/peer-defects.md or docs/checkpoint-promises.md names is in the sources. Prints file:line:
// message; exits 1 if there is any.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tools/doc_links.h"

namespace {

namespace fs = std::filesystem;

struct Rule {
  std::string place;                 // the longest matching prefix decides
  std::vector<std::string> allowed;  // prefixes of our own headers that it may include
  std::vector<std::string> banned;   // prefixes of third-party headers that it may not include
};

const std::vector<std::string> kWire = {"grpc", "google/protobuf", "absl", "proto/"};
const std::vector<std::string> kTorch = {"ATen", "torch", "c10", "gloo"};

std::vector<std::string> join(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = {
      {"common/base/", {"common/base/"}, join(kWire, kTorch)},
      {"common/net/", {"common/net/", "common/base/"}, join(kWire, kTorch)},
      {"common/process/", {"common/process/", "common/net/", "common/base/"}, join(kWire, kTorch)},
      {"common/job/", {"common/job/", "common/process/", "common/base/"}, join(kWire, kTorch)},
      {"common/jobfile/",
       {"common/jobfile/", "common/job/", "common/process/", "common/base/"},
       join(kWire, kTorch)},
      {"common/worker/",
       {"common/worker/", "common/job/", "common/net/", "common/base/"},
       join(kWire, kTorch)},
      {"common/slurm/",
       {"common/slurm/", "common/job/", "common/process/", "common/net/", "common/base/"},
       join(kWire, kTorch)},
      {"common/gpu/", {"common/gpu/", "common/base/"}, join(kWire, kTorch)},
      {"common/layout/", {"common/layout/", "common/job/", "common/base/"}, join(kWire, kTorch)},
      {"common/authority/",
       {"common/authority/", "common/net/", "common/base/"},
       join(kWire, kTorch)},
      {"common/rpc/", {"common/", "proto/"}, kTorch},
      {"common/recorder/", {"common/recorder/", "common/base/"}, join(kWire, kTorch)},
      {"common/watch/", {"common/watch/", "common/job/", "common/base/"}, join(kWire, kTorch)},
      {"controller/core/",
       {"controller/core/", "common/job/", "common/layout/", "common/worker/", "common/base/"},
       join(kWire, kTorch)},
      {"controller/step/",
       {"controller/step/", "controller/agents/progress.h", "controller/core/", "common/base/",
        "common/job/", "common/net/", "common/process/", "common/worker/"},
       join(kWire, kTorch)},
      // Rooms of the controller: an arrow points from a line to what is named in it, never back.
      {"controller/engine/",
       {"controller/engine/", "controller/core/", "common/", "trainer/checkpoint/commit.h",
        "trainer/checkpoint/confirm.h", "trainer/checkpoint/manifest.h",
        "trainer/checkpoint/manifest_format.h", "trainer/checkpoint/mirror.h"},
       kTorch},
      {"controller/access/", {"controller/access/", "common/", "proto/"}, kTorch},
      {"controller/schedulers/", {"controller/schedulers/", "controller/core/", "common/"}, kTorch},
      {"controller/agents/",
       {"controller/agents/", "controller/access/", "controller/core/", "controller/engine/",
        "controller/schedulers/scheduler.h", "common/", "proto/"},
       kTorch},
      {"controller/publish/",
       {"controller/publish/", "controller/access/accept.h", "controller/access/audit_entry.h",
        "controller/agents/progress.h", "controller/core/", "controller/engine/", "common/",
        "proto/"},
       kTorch},
      {"controller/api/",
       {"controller/api/", "controller/access/", "controller/agents/", "controller/core/",
        "controller/engine/", "controller/publish/", "common/", "proto/"},
       kTorch},
      {"controller/page/",
       {"controller/page/", "controller/api/event_feed.h", "controller/api/job_lookup.h",
        "controller/agents/progress.h", "controller/core/", "controller/engine/",
        "controller/publish/", "common/", "third_party/uplot/"},
       kTorch},
      {"controller/notify/core/",
       {"controller/notify/core/", "controller/core/", "common/watch/", "common/job/",
        "common/base/"},
       join(kWire, kTorch)},
      {"controller/notify/",
       {"controller/notify/", "controller/engine/task_lanes.h", "common/"},
       kTorch},
      {"controller/leadership/",
       {"controller/leadership/", "controller/core/", "controller/engine/", "controller/publish/",
        "controller/schedulers/", "common/", "proto/"},
       kTorch},
      {"controller/", {"controller/", "common/", "proto/"}, kTorch},
      {"agent/core/",
       {"agent/core/", "common/job/", "common/worker/", "common/base/"},
       join(kWire, kTorch)},
      {"agent/holder/", {"agent/holder/", "agent/core/", "common/"}, join(kWire, kTorch)},
      {"agent/nodecheck/core/", {"agent/nodecheck/core/", "common/base/"}, join(kWire, kTorch)},
      {"agent/nodecheck/",
       {"agent/nodecheck/", "agent/holder/spawn.h", "common/"},
       join(kWire, kTorch)},
      {"agent/shim/",
       {"agent/shim/", "agent/holder/progress_file.h", "agent/holder/python_standby_order.h",
        "agent/holder/spawn.h", "agent/holder/standby_times.h", "agent/holder/worker_mark.h",
        "common/base/", "common/job/", "common/net/", "common/process/", "common/worker/"},
       join(kWire, kTorch)},
      {"agent/stacks/",
       {"agent/stacks/", "common/base/", "common/job/", "common/process/", "common/recorder/"},
       join(kWire, kTorch)},
      {"agent/", {"agent/", "common/", "proto/", "trainer/checkpoint/confirm.h"}, kTorch},
      {"trainer/data/", {"trainer/data/", "common/job/", "common/base/"}, join(kWire, kTorch)},
      {"trainer/checkpoint/",
       {"trainer/checkpoint/", "trainer/data/", "trainer/arch/hf_config.h", "trainer/arch/lora.h",
        "trainer/arch/registry.h", "trainer/optim/records.h", "trainer/kernels/bf16_rounding.h",
        "common/base/", "common/job/", "common/layout/"},
       join(kWire, kTorch)},
      {"trainer/kernels/", {"trainer/kernels/"}, join(kWire, kTorch)},
      {"trainer/plan/",
       {"trainer/plan/", "trainer/arch/registry.h", "common/base/", "common/job/", "common/layout/",
        "common/worker/"},
       join(kWire, kTorch)},
      {"trainer/schedule/", {"trainer/schedule/", "common/base/"}, join(kWire, kTorch)},
      {"trainer/",
       {"trainer/", "common/base/", "common/gpu/", "common/job/", "common/layout/", "common/net/",
        "common/process/", "common/worker/"},
       kWire},
      {"hpctl/",
       {"hpctl/", "common/", "proto/", "controller/core/", "controller/leadership/ask_owner.h",
        "controller/leadership/local_submission.h", "controller/publish/status_files.h",
        "trainer/data/", "trainer/checkpoint/", "trainer/plan/", "trainer/arch/registry.h",
        "trainer/arch/hf_config.h", "trainer/arch/lora.h"},
       kTorch},
      {"hpctl/migrate/",
       {"hpctl/migrate/", "common/base/", "common/job/", "common/jobfile/"},
       kTorch},
      {"slurm-plugins/",
       {"slurm-plugins/", "common/base/", "common/net/", "common/process/", "common/slurm/"},
       join(kWire, kTorch)},
  };
  return table;
}

// Words that make a core impure, each with what to do instead.
const std::vector<std::pair<std::regex, std::string>>& impure() {
  static const std::vector<std::pair<std::regex, std::string>> table = {
      {std::regex(R"(_clock\b|::now\(|<chrono>|<ctime>|\btime\()"), "time is Event::now_ms"},
      {std::regex(R"(random_device|<random>|\brand\()"), "randomness is an argument"},
      {std::regex(R"(\bgetenv|<fstream>|<iostream>|<cstdio>|<fcntl|<unistd|<sys/)"), "no I/O"},
      {std::regex(R"(<thread>|<mutex>|<atomic>|std::thread|sleep)"), "no threads"},
      {std::regex(R"(unordered_)"), "ordered containers only"},
  };
  return table;
}

int findings = 0;

void report(const std::string& file, size_t line, const std::string& message) {
  std::cout << file << ":" << line << ": " << message << "\n";
  ++findings;
}

std::vector<std::string> read_lines(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

bool starts_with_any(const std::string& text, const std::vector<std::string>& prefixes) {
  for (const auto& p : prefixes) {
    if (text.rfind(p, 0) == 0) return true;
  }
  return false;
}

const Rule* rule_for(const std::string& file) {
  const Rule* best = nullptr;
  for (const Rule& rule : rules()) {
    if (file.rfind(rule.place, 0) != 0) continue;
    if (best == nullptr || rule.place.size() > best->place.size()) best = &rule;
  }
  return best;
}

std::string folder_of(const std::string& file) { return file.substr(0, file.rfind('/')); }

// Folders of the product, and one #include line for each folder that a folder includes.
struct IncludeLine {
  std::string file;
  size_t line;
};
using FolderGraph = std::map<std::string, std::map<std::string, IncludeLine>>;

// The shortest way along includes, both ends with it; empty if there is none.
std::vector<std::string> way_between(const FolderGraph& graph, const std::string& from,
                                     const std::string& to) {
  std::map<std::string, std::string> came_from = {{from, ""}};
  std::vector<std::string> queue = {from};
  for (size_t i = 0; i < queue.size() && came_from.count(to) == 0; ++i) {
    const auto edges = graph.find(queue[i]);
    if (edges == graph.end()) continue;
    for (const auto& [next, line] : edges->second) {
      if (came_from.emplace(next, queue[i]).second) queue.push_back(next);
    }
  }
  if (came_from.count(to) == 0) return {};
  std::vector<std::string> way = {to};
  while (way.back() != from) way.push_back(came_from[way.back()]);
  std::reverse(way.begin(), way.end());
  return way;
}

void check_circles(const FolderGraph& graph) {
  for (const auto& [folder, edges] : graph) {
    for (const auto& [included, at] : edges) {
      const auto way = way_between(graph, included, folder);
      if (way.empty()) continue;
      std::string circle = folder;
      for (const std::string& next : way) circle += " -> " + next;
      report(at.file, at.line, "folders include each other in a circle: " + circle);
    }
  }
}

void add_edges(FolderGraph& graph, const std::string& file, const std::vector<std::string>& lines) {
  static const std::regex pattern(
      R"re(^\s*#\s*include\s+"((?:common|controller|agent|trainer|hpctl)/[^"]+)")re");
  if (file.rfind("tests/", 0) == 0 || file.rfind("tools/", 0) == 0) return;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch m;
    if (!std::regex_search(lines[i], m, pattern)) continue;
    const std::string from = folder_of(file), to = folder_of(m[1]);
    if (from != to) graph[from].emplace(to, IncludeLine{file, i + 1});
  }
}

void check_includes(const std::string& file, const std::vector<std::string>& lines) {
  static const std::regex pattern(R"re(^\s*#\s*include\s+(["<])([^">]+))re");
  static const std::vector<std::string> roots = {
      "common/",        "controller/", "agent/", "trainer/", "hpctl/",      "proto/",
      "slurm-plugins/", "tests/",      "tools/", "absl/",    "third_party/"};
  const Rule* rule = rule_for(file);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch m;
    if (!std::regex_search(lines[i], m, pattern)) continue;
    const bool quoted = m[1] == "\"";
    const std::string target = m[2];
    if (rule != nullptr && starts_with_any(target, rule->banned)) {
      report(file, i + 1, rule->place + " may not use " + target);
    }
    if (target == "nlohmann/json.hpp" && file != "common/base/json.h") {
      report(file, i + 1, "include common/base/json.h, with which whole numbers are read strictly");
    }
    if (!quoted || target.rfind("absl/", 0) == 0) continue;
    if (!starts_with_any(target, roots)) {
      report(file, i + 1, "include \"" + target + "\" from the repository root");
    } else if (rule != nullptr && !starts_with_any(target, rule->allowed)) {
      report(file, i + 1, rule->place + " may not include " + target);
    }
    if (target.find("main.cc") != std::string::npos) report(file, i + 1, "nobody includes a main");
  }
}

void check_purity(const std::string& file, const std::vector<std::string>& lines) {
  const bool is_core = file.find("/core/") != std::string::npos ||
                       starts_with_any(file, {"common/recorder/", "common/watch/"});
  if (!is_core || file.rfind("tests/", 0) == 0) return;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string code = lines[i].substr(0, lines[i].find("//"));
    for (const auto& [pattern, remedy] : impure()) {
      if (std::regex_search(code, pattern)) report(file, i + 1, "a core is pure: " + remedy);
    }
  }
}

// The library's dump() throws for text that is not UTF-8.
void check_json_texts(const std::string& file, const std::vector<std::string>& lines) {
  static const std::set<std::string> kOwn = {"common/base/json.h", "common/base/json_text.cc"};
  if (file.rfind("tests/", 0) == 0 || kOwn.count(file) != 0) return;
  static const std::regex pattern(R"(\.\s*dump\()");
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string code = lines[i].substr(0, lines[i].find("//"));
    if (!std::regex_search(code, pattern)) continue;
    report(file, i + 1, "dump() throws for a text that is not UTF-8; use common/base/json_text.h");
  }
}

// Characters, not bytes: continuation bytes of UTF-8 do not count.
size_t columns(const std::string& line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

void check_form(const std::string& file, const std::vector<std::string>& lines) {
  constexpr size_t kMostLines = 600;
  if (lines.size() > kMostLines) {
    report(file, kMostLines, "longer than " + std::to_string(kMostLines) + " lines");
  }
  bool licensed = false;
  for (size_t i = 0; i < lines.size() && i < 3; ++i) {
    licensed =
        licensed || lines[i].find("SPDX-License-Identifier: Apache-2.0") != std::string::npos;
  }
  if (!licensed) report(file, 1, "the first lines must carry SPDX-License-Identifier: Apache-2.0");
  for (size_t i = 0; i < lines.size(); ++i) {
    if (columns(lines[i]) > 100) report(file, i + 1, "longer than 100 columns");
  }
}

// A source file must be named, relative to it, in a CMakeLists.txt of some directory above.
void check_registered(const fs::path& root, const std::string& file) {
  static std::map<std::string, std::string> cache;
  for (fs::path dir = fs::path(file).parent_path();; dir = dir.parent_path()) {
    const std::string list = (root / dir / "CMakeLists.txt").string();
    if (cache.count(list) == 0) {
      std::ifstream in(list);
      std::stringstream text;
      text << in.rdbuf();
      cache[list] = text.str();
    }
    const std::string relative =
        fs::path(file).lexically_relative(dir.empty() ? "." : dir).string();
    if (cache[list].find(relative) != std::string::npos) return;
    if (dir.empty()) break;
  }
  report(file, 1, "not named in any CMakeLists.txt above it");
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// "PROGRAM SUITE.TEST" of every hp_test() below tests/, and "core_golden SCENARIO".
std::set<std::string> find_tests(const fs::path& root) {
  static const std::regex program(R"(hp_test\(\s*(\w+)\s([^)]*)\))");
  static const std::regex source(R"([\w/]+\.cc)");
  static const std::regex test(R"(\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\))");
  std::set<std::string> tests;
  for (const auto& entry : fs::recursive_directory_iterator(root / "tests")) {
    if (entry.path().extension() == ".script") {
      tests.insert("core_golden " + entry.path().stem().string());
    }
    if (entry.path().filename() != "CMakeLists.txt") continue;
    const std::string list = read_text(entry.path());
    for (std::sregex_iterator p(list.begin(), list.end(), program), end; p != end; ++p) {
      const std::string arguments = (*p)[2];
      for (std::sregex_iterator f(arguments.begin(), arguments.end(), source); f != end; ++f) {
        const std::string text = read_text(entry.path().parent_path() / f->str());
        for (std::sregex_iterator t(text.begin(), text.end(), test); t != end; ++t) {
          tests.insert((*p)[1].str() + " " + (*t)[1].str() + "." + (*t)[2].str());
        }
      }
    }
  }
  return tests;
}

// Rows "| NUMBER | defect | how | tests |", the tests in backticks, at least one.
void check_named_tests(const fs::path& root, const std::string& page,
                       const std::set<std::string>& tests) {
  static const std::regex row(R"(^\| *\d+ \|.*\|.*\|(.*)\|$)");
  static const std::regex quoted("`([^`]*)`");
  const auto lines = read_lines(root / page);
  size_t rows = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch m;
    if (!std::regex_match(lines[i], m, row)) continue;
    ++rows;
    const std::string cell = m[1];
    std::sregex_iterator name(cell.begin(), cell.end(), quoted);
    if (name == std::sregex_iterator()) report(page, i + 1, "names no test");
    for (; name != std::sregex_iterator(); ++name) {
      const std::string wanted = (*name)[1];
      if (tests.count(wanted) == 0) report(page, i + 1, "there is no test " + wanted);
    }
  }
  if (rows == 0) report(page, 1, "has no row with tests");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: check_layout ROOT\n";
    return 2;
  }
  const fs::path root = argv[1];
  size_t files = 0;
  FolderGraph graph;
  for (const char* top : {"common", "controller", "agent", "trainer", "hpctl", "slurm-plugins",
                          "tests", "tools", "scripts", "cmake"}) {
    if (!fs::exists(root / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      if (!entry.is_regular_file()) continue;
      const std::string file = entry.path().lexically_relative(root).generic_string();
      const std::string extension = entry.path().extension().string();
      const bool code = extension == ".cc" || extension == ".h" || extension == ".c";
      if (!code && extension != ".sh" && extension != ".cmake") continue;
      const auto lines = read_lines(entry.path());
      ++files;
      check_form(file, lines);
      if (!code) continue;
      check_includes(file, lines);
      add_edges(graph, file, lines);
      check_purity(file, lines);
      check_json_texts(file, lines);
      if (extension == ".h" &&
          std::find(lines.begin(), lines.end(), "#pragma once") == lines.end()) {
        report(file, 1, "a header needs #pragma once");
      }
      if (extension != ".h") check_registered(root, file);
    }
  }
  check_circles(graph);
  const std::set<std::string> tests = find_tests(root);
  for (const char* page : {"docs/peer-defects.md", "docs/checkpoint-promises.md"}) {
    check_named_tests(root, page, tests);
  }
  for (const BrokenLink& b : find_broken_links(root)) report(b.page, b.line, b.message);
  std::cout << files << " files, " << findings << " findings\n";
  return findings == 0 ? 0 : 1;
}
