// SPDX-License-Identifier: Apache-2.0
// How soon does a browser show the status page of a large cluster?
//
//   bench_page [RUNS]
//
// The real server and page in a real Chromium; the answers are made here: 50 and 200 jobs, and one
// of 1,000 nodes with 8 ranks each, of which some are slow, lost or behind. Measured in the
// browser, from the beginning of the navigation: the first paint, and until the jobs, or all nodes
// and ranks, are there; and how long the script takes for one update. With HPCTL_SCREENSHOTS=DIR
// the picture is written there. Prints a table, then one line of JSON. Nothing is asserted.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "controller/page/page_access.h"
#include "controller/page/page_rows.h"
#include "controller/page/page_server.h"
#include "tests/bench/figures.h"
#include "tests/support/browser.h"

namespace hpctl::test {
namespace {

using nlohmann::json;
using testing::median;

constexpr std::array kJobs = {50, 200};
constexpr int kNodes = 1'000;
constexpr int kRanksOfNode = 8;

// With the fields and words of a real answer.
json job_line(int id, int64_t now_ms) {
  static const char* const kStates[] = {"RUNNING", "RUNNING", "RUNNING", "RECOVERING", "FINISHED"};
  JobSummary job;
  job.job = JobId{static_cast<uint64_t>(id)};
  job.name = "pretrain-" + std::to_string(id);
  job.state = kStates[id % 5];
  job.owner = std::to_string(1'000 + id % 7);
  job.generation = 1 + static_cast<uint64_t>(id % 4);
  job.step = 1'000 * static_cast<uint64_t>(id);
  job.total_steps = 100'000;
  job.tokens_per_second = 1e6 + 1e4 * id;
  job.faults = id % 4;
  job.restarts = id % 4;
  job.ranks = kNodes * kRanksOfNode;
  job.submitted_at = WallTime(now_ms - 3'600'000LL * id);
  job.taken_at = WallTime(now_ms);
  job.spent.start_ms = 60'000;
  job.spent.restart_ms = 90'000LL * (id % 4);
  job.reason = "generation " + std::to_string(job.generation) + " completed step 17";
  std::vector<Finding> found;
  if (id % 5 == 3) {
    found.push_back({FindingKind::kRestartsOften, Severity::kWarn, job.job, job.name, job.owner, "",
                     "", job.taken_at.before(60'000), "it recovered 4 times within an hour",
                     "`hpctl events`: whether they name one node or one rank"});
  }
  json line = page_job_row(job, found);
  line["loss"] = 2.0 + 0.01 * id;
  line["nodes"] = kNodes;
  return line;
}

json large_job(int64_t now_ms) {
  json job = job_line(1, now_ms);
  job.update({{"now_ms", now_ms},
              {"checkpoint_step", 900},
              {"snapshot_step", 990},
              {"mfu", 0.41},
              {"stragglers", {"node0417: rank 3339 takes 1.42 times as long as the others"}}});
  job["time"] = {{"start", 90'000, "from its submission to its first step"},
                 {"train", 3'400'000, "steps, and their evaluation"},
                 {"restart", 12'000, "workers were started, until their first step"}};
  job["node_rows"] = json::array();
  job["rank_rows"] = json::array();
  for (int node = 0; node < kNodes; ++node) {
    std::string name = std::to_string(node);
    name = "node" + std::string(4 - name.size(), '0') + name;
    const bool is_lost = node == 123;
    const bool is_spare = node >= 992;
    const json standbys = is_spare ? json({8, 8, 0, 1LL << 30}) : json(nullptr);
    const json lemon = node == 417 ? json({3.5, true, "held job 3 up: slow"}) : json(nullptr);
    job["node_rows"].push_back({name,
                                is_lost    ? "lost"
                                : is_spare ? "spare"
                                           : "active",
                                is_lost ? "down" : "up", is_lost ? "its holder is silent" : "",
                                standbys, lemon});
    for (int rank = 0; rank < kRanksOfNode; ++rank) {
      const bool is_slow = node == 417 && rank == 3;
      const double step_ms = 600 + node % 5;
      const double waiting_ms = is_slow ? 10 : 160 + (node * 7 + rank * 13) % 60;
      job["rank_rows"].push_back({node * kRanksOfNode + rank, name, is_lost ? "exited" : "running",
                                  "training", 1'000, step_ms, waiting_ms});
    }
  }
  json plots = {{"at_ms", json::array()}, {"step", json::array()}};
  for (int i = 0; i < 600; ++i) {
    plots["at_ms"].push_back(now_ms - 6'000LL * (600 - i));
    plots["step"].push_back(i);
    plots["loss"].push_back(2 + 8.0 / (1 + i));
    plots["tokens_per_second"].push_back(1e6 + 1e4 * (i % 7));
    plots["goodput"].push_back(1 - 0.02 * i / 600);
  }
  job["plots"] = plots;
  return job;
}

std::string job_list(int jobs, int64_t now_ms) {
  json lines = json::array();
  for (int id = 1; id <= jobs; ++id) lines.push_back(job_line(id, now_ms));
  return json{{"now_ms", now_ms}, {"node", "head"}, {"version", "x"}, {"jobs", lines}}.dump();
}

struct Figures {
  std::vector<double> paint_ms;
  std::vector<double> whole_ms;
};

// Notes when `selector` first has `count` elements.
Figures measure(Browser& browser, const std::string& url, const std::string& selector, int count,
                int runs) {
  Figures figures;
  for (int run = 0; run < runs; ++run) {
    browser.go("about:blank");
    browser.go(url);
    HP_CHECK(browser.wait_for("return document.querySelectorAll('" + selector +
                              "').length >= " + std::to_string(count) +
                              " && performance.getEntriesByType('paint').length > 0"));
    figures.paint_ms.push_back(
        browser.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime"));
    figures.whole_ms.push_back(
        browser.run("return performance.getEntriesByName('shown')[0].startTime"));
  }
  return figures;
}

int run(int runs) {
  const SystemClock clock;
  PageAccess access(clock);
  const int64_t now_ms = clock.wall_ms();
  std::array<std::string, kJobs.size()> lists;
  for (size_t i = 0; i < kJobs.size(); ++i) lists[i] = job_list(kJobs[i], now_ms);
  std::atomic<size_t> listed = 0;  // which of them
  const std::string one = large_job(now_ms).dump();
  const std::string events =
      json{{"events", json::array()},
           {"left_out", 0},
           {"summary", "RUNNING: nothing has happened"},
           {"why", json::array()},
           {"timeline", {{"segments", json::array()}, {"marks", json::array()}}}}
          .dump();
  auto server = PageServer::open("127.0.0.1:0", access, [&](uint32_t, const auto& request) {
    return Result<std::string>(request.path == "/api/jobs"  ? lists[listed]
                               : request.path == "/api/job" ? one
                                                            : events);
  });
  HP_CHECK(server.ok());
  const std::string url = (*server)->url();
  const auto browser = Browser::start({1280, 1400, false});
  HP_CHECK(browser != nullptr);
  browser->go(url + "/open?code=" + access.make_code(0).value());
  std::array<Figures, kJobs.size()> list;
  for (; listed < kJobs.size(); ++listed) {
    list[listed] = measure(*browser, url + "/", "tbody tr", kJobs[listed], runs);
  }
  listed = 0;
  const Figures job =
      measure(*browser, url + "/#job=1", ".cell", kNodes * (1 + kRanksOfNode), runs);
  const double update_ms = browser->run(
      "const data = arguments[0]; const begin = performance.now(); showJob(data);"
      "document.body.getBoundingClientRect(); return performance.now() - begin",
      json::array({json::parse(one)}));
  if (const char* directory = std::getenv("HPCTL_SCREENSHOTS")) {
    HP_CHECK(write_file_atomic(directory + std::string("/page-1000-nodes.png"),
                               browser->screenshot("html"))
                 .ok());
  }
  std::printf("median of %d runs, ms after the navigation began\n", runs);
  std::printf("%-34s %12s %12s\n", "", "first paint", "all shown");
  json figures = {{"name", "page"}, {"runs", runs}, {"update_ms", update_ms}};
  for (size_t i = 0; i < kJobs.size(); ++i) {
    const std::string what = std::to_string(kJobs[i]) + " jobs";
    std::printf("%-34s %12.0f %12.0f\n", what.c_str(), median(list[i].paint_ms),
                median(list[i].whole_ms));
    const std::string name = "jobs_" + std::to_string(kJobs[i]);
    figures[name + "_first_paint_ms"] = median(list[i].paint_ms);
    figures[name + "_shown_ms"] = median(list[i].whole_ms);
  }
  std::printf("%-34s %12.0f %12.0f\n", "a job of 1,000 nodes, 8,000 ranks", median(job.paint_ms),
              median(job.whole_ms));
  std::printf("its answer: %zu KB; one update by the script, layout included: %.0f ms\n",
              one.size() / 1'000, update_ms);
  figures["job_first_paint_ms"] = median(job.paint_ms);
  figures["job_shown_ms"] = median(job.whole_ms);
  std::cout << figures.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace hpctl::test

int main(int argc, char** argv) { return hpctl::test::run(argc > 1 ? std::atoi(argv[1]) : 11); }
