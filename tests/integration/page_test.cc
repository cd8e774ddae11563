// SPDX-License-Identifier: Apache-2.0
// The status page in a real Chromium: a real job is looked at while one of its workers is killed.
// With HPCTL_SCREENSHOTS=DIR what is seen is written there (docs/images has those of the README).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>
#include <thread>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/job/node_record.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"
#include "tests/support/browser.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using test::Browser;

constexpr const char* kTab = "\uE004";
constexpr const char* kEnter = "\uE007";

class Page : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Browser::is_installed()) GTEST_SKIP() << "chromium and chromium-driver are not installed";
  }
  // Some steps a second: what trains as fast as it can takes the browser's time.
  JobId train(const std::string& nodes = "2", const std::string& more = "") {
    return cluster_.submit(
        "name: quick-brown-fox\nnodes: " + nodes +
        "\nworkers_per_node: 2\n"
        "workload:\n  train:\n    model: {preset: tiny}\n"
        "    data: {path: /usr/share/common-licenses/GPL-3, seq_len: 64}\n"
        "    batch: {micro: 1, global: 4}\n    steps: 100000\n    precision: fp32\n"
        "checkpoint: {every_steps: 20}\n"
        "env: {set: {LD_PRELOAD: " SLOW_READS
        ", SLOW_READS_OF: /usr/share/common-licenses/GPL-3}}\n" +
        more);
  }
  // Through a link of its own.
  std::unique_ptr<Browser> look(const std::vector<std::string>& job,
                                const Browser::Window& window) {
    std::vector<std::string> words = {"open", "--json"};
    words.insert(words.end(), job.begin(), job.end());
    const auto opened = cluster_.hpctl(words);
    EXPECT_EQ(opened.exit_code, 0) << opened.err;
    url_ = json::parse(opened.out).at("url").get<std::string>();
    auto browser = Browser::start(window);
    if (browser) browser->go(url_);
    return browser;
  }
  static bool shows(Browser& browser, const std::string& text) {
    return browser.wait_for("return document.body.innerText.includes(" + json(text).dump() + ")");
  }
  // A picture for people has plots worth looking at.
  static void let_plots_grow(Browser& browser, int points) {
    if (std::getenv("HPCTL_SCREENSHOTS") == nullptr) return;
    EXPECT_TRUE(
        browser.wait_for("return Plots.series()?.first.length >= " + std::to_string(points)));
  }
  static void keep(Browser& browser, const std::string& name) {
    const char* directory = std::getenv("HPCTL_SCREENSHOTS");
    if (directory == nullptr) return;
    EXPECT_TRUE(
        write_file_atomic(directory + ("/" + name + ".png"), browser.screenshot("html")).ok());
  }

  static std::string node_cell(const std::string& node) {
    return "document.querySelector('#node-grid .cell[data-node=" + node + "]')";
  }
  static std::string rank_cell(int rank) {
    return "document.querySelector('#rank-grid .cell[data-rank=\"" + std::to_string(rank) + "\"]')";
  }
  // Of a rank that trains: 0 to 6, how dark.
  static std::string shade_of(int rank) {
    return "Number(/heat([0-6])/.exec(" + rank_cell(rank) + ".className)?.[1])";
  }

  LocalCluster cluster_;
  std::string url_;
};

TEST_F(Page, ShowsAFaultAsItHappens) {
  const JobId job = train();
  const auto browser = look({"quick-brown-fox"}, {1280, 1500, false});
  ASSERT_NE(browser, nullptr);
  EXPECT_TRUE(shows(*browser, "RUNNING"));
  EXPECT_TRUE(browser->wait_for("return document.title.startsWith('quick-brown-fox RUNNING')"));
  EXPECT_TRUE(shows(*browser, "4 training"));
  EXPECT_TRUE(shows(*browser, "standbys: 2 of 2 ready"));
  EXPECT_TRUE(
      browser->wait_for("return document.querySelectorAll('#rank-grid .of-node').length === 2"));
  // The plots grow by themselves.
  EXPECT_TRUE(browser->wait_for("return Plots.series()?.last_step >= 2"));
  const int drawn = browser->run("return Plots.series().last_step");
  EXPECT_TRUE(browser->wait_for("return Plots.series().last_step > " + std::to_string(drawn)));
  for (const std::string chart : {"loss", "rate", "grad", "lr", "memory", "times"}) {
    EXPECT_EQ(browser->run("return document.querySelectorAll('[data-chart=" + chart +
                           "] canvas').length"),
              1)
        << chart;
  }
  let_plots_grow(*browser, 15);
  ASSERT_TRUE(end_process(worker_pid(cluster_.status(job), 2)));
  EXPECT_TRUE(shows(*browser, "worker 2 on n1 died of SIGKILL at step"));
  EXPECT_TRUE(browser->wait_for(
      "return [...document.querySelectorAll('dt')].some((d) => d.textContent === 'generation' && "
      "d.nextSibling.textContent === '2')"));
  EXPECT_TRUE(shows(*browser, "4 training"));
  EXPECT_TRUE(shows(*browser, "1, 1")) << "faults, restarts";
  EXPECT_EQ(browser->complaints(), "");
  let_plots_grow(*browser, 30);
  keep(*browser, "page-job");

  // A link counts once: another browser is told so, and is shown nothing.
  const auto other = Browser::start({});
  ASSERT_NE(other, nullptr);
  other->go(url_);
  EXPECT_TRUE(shows(*other, "hpctl open"));
  EXPECT_EQ(other->run("return document.body.innerText.includes('quick-brown-fox')"), false);

  // With the keyboard alone: to all jobs, sorted by name, and back to this one.
  browser->run("document.activeElement.blur()");
  browser->press(kTab);
  EXPECT_EQ(browser->run("return document.activeElement.id"), "home");
  browser->press(kEnter);
  EXPECT_TRUE(shows(*browser, "1 job: 1 RUNNING"));
  browser->run("document.querySelector('[data-sort=name]').focus()");
  browser->press(kEnter);
  EXPECT_TRUE(browser->wait_for(
      "return document.querySelector('[aria-sort] button')?.dataset.sort === 'name'"));
  // Others come beside it.
  const std::string others[] = {"name: tokenize\nworkload: {command: ['true']}\n",
                                "name: evaluate\nworkload: {command: ['false']}\n"
                                "recovery: {max_restarts: 0}\n"};
  EXPECT_EQ(cluster_.wait_for_end(cluster_.submit(others[0]), seconds(60)), "FINISHED");
  EXPECT_EQ(cluster_.wait_for_end(cluster_.submit(others[1]), seconds(60)), "FAILED");
  EXPECT_TRUE(shows(*browser, "tokenize"));
  EXPECT_TRUE(shows(*browser, "FAILED"));
  keep(*browser, "page-jobs");
  browser->run(
      "[...document.querySelectorAll('tbody a')].find("
      "(link) => link.textContent === 'quick-brown-fox').focus()");
  browser->press(kEnter);
  EXPECT_TRUE(shows(*browser, "Where the time went"));
  EXPECT_EQ(browser->complaints(), "");
}

// What hpctl watch would say is on the page while it is so, as text; so is a machine that jobs
// before this one speak against.
TEST_F(Page, ShowsWhatIsFoundUntilItIsOver) {
  const std::string records = node_records_directory(cluster_.paths());
  const int64_t now_ms = SystemClock().wall_ms();
  ASSERT_TRUE(
      append_node_records(records, "900.jsonl",
                          {{now_ms, 900, "n1", "", NodeRecordKind::kHardware, "1", "Xid 79"}})
          .ok());
  const JobId job = train("{count: 2, spares: 1}", "recovery: {max_restarts: 1, window: 20s}\n");
  const auto browser = look({"quick-brown-fox"}, {});
  ASSERT_NE(browser, nullptr);
  EXPECT_TRUE(shows(*browser, "4 training"));
  EXPECT_TRUE(shows(*browser, "lemon 4.0: Xid 79"));
  EXPECT_TRUE(browser->wait_for("return " + node_cell("n0") + ".classList.contains('good')"));
  EXPECT_TRUE(browser->wait_for("return " + node_cell("n1") + ".title.includes('lemon 4.0')"));
  // Lines of the job's view of this class, "bad" or "warn", that begin so.
  const auto count = [](const std::string& mood, const std::string& begin) {
    return "[...document.querySelectorAll('#head .finding." + mood +
           "')].filter((line) => line.textContent.startsWith(" + json(begin).dump() + ")).length";
  };
  EXPECT_TRUE(browser->wait_for("return " + count("warn", "warn: n1 is a lemon") + " === 1"));
  const std::string any = "document.querySelectorAll('#head .finding').length - 1";
  EXPECT_EQ(browser->run("return " + any), 0) << "nothing is found yet";

  const std::vector<std::string> node = {"n2", "--job", to_string(job)};
  const auto order = [&](const std::string& verb) {
    return cluster_.hpctl({"nodes", verb, node[0], node[1], node[2]}).exit_code;
  };
  EXPECT_EQ(order("quarantine"), 0);
  EXPECT_TRUE(browser->wait_for("return " + count("warn", "warn: n2 is in quarantine") + " === 1"));
  EXPECT_TRUE(
      browser->wait_for("return " + count("warn", "warn: no spare is left of 1") + " === 1"));
  EXPECT_TRUE(browser->wait_for("return " + node_cell("n2") + ".classList.contains('bad')"));
  EXPECT_EQ(order("release"), 0);
  EXPECT_TRUE(browser->wait_for("return " + any + " === 0"));
  EXPECT_TRUE(browser->wait_for("return " + node_cell("n2") + ".classList.contains('idle') && " +
                                node_cell("n2") + ".title.startsWith('n2: spare')"));

  // The only restart that it has is spent, until the window is over.
  ASSERT_TRUE(end_process(worker_pid(cluster_.status(job), 2)));
  const std::string spent = count("bad", "critical: the next fault fails it: 0 of 1") + " === 1";
  EXPECT_TRUE(browser->wait_for("return " + spent));
  browser->run("document.getElementById('home').click()");
  EXPECT_TRUE(browser->wait_for(
      "return document.querySelector('tbody b.bad')?.textContent.trim() === 'critical \u00d7 2'"))
      << "in the list of all jobs";
  EXPECT_TRUE(
      browser->wait_for("return document.querySelector('tbody b')?.textContent.trim() === 'warn'"))
      << "the lemon stays";
  browser->run("document.querySelector('tbody a').click()");
  EXPECT_TRUE(shows(*browser, "4 training"));
  EXPECT_EQ(browser->run("return " + any), 0);
  EXPECT_EQ(browser->complaints(), "");
}

// A screen reader is told what is new, and nothing each second.
TEST_F(Page, LiveRegionsAreQuietWhileNothingHappens) {
  const JobId job = train();
  const auto browser = look({"quick-brown-fox"}, {});
  ASSERT_NE(browser, nullptr);
  EXPECT_TRUE(shows(*browser, "4 training"));
  const std::string said = "document.getElementById('said').textContent";
  EXPECT_TRUE(
      browser->wait_for("return " + said + " === 'quick-brown-fox is RUNNING, generation 1'"));
  // Counts changes of live regions, of the clock, and looks for regions that come later.
  browser->run(
      "window.changes = 0; window.ticks = 0;"
      "const regions = () => document.querySelectorAll('[aria-live], [role=status], [role=alert]');"
      "window.regions = regions;"
      "const all = {childList: true, characterData: true, subtree: true, attributes: true};"
      "for (const region of regions()) new MutationObserver(() => ++changes).observe(region, all);"
      "new MutationObserver(() => ++ticks).observe(document.getElementById('clock'), all);"
      "window.begun = performance.now();");
  EXPECT_EQ(browser->run("return regions().length"), 2);
  EXPECT_TRUE(browser->wait_for("return performance.now() - begun > 5000 && ticks >= 3"));
  EXPECT_EQ(browser->run("return changes"), 0) << browser->run("return " + said);
  EXPECT_EQ(browser->run("return regions().length"), 2);

  ASSERT_TRUE(end_process(worker_pid(cluster_.status(job), 2)));
  EXPECT_TRUE(
      browser->wait_for("return " + said + " === 'quick-brown-fox is RUNNING, generation 2'"));
  EXPECT_EQ(browser->run("return changes >= 1 && changes <= 6"), true)
      << browser->run("return changes") << ": once for each state";
  EXPECT_EQ(browser->complaints(), "");
}

// A rank that is slow on purpose is the darkest cell of its own time, and of waiting the palest.
TEST_F(Page, AMapOfRanksShowsWhoIsSlow) {
  const JobId job = cluster_.submit(
      "name: slow\nnodes: 4\n"
      "workload:\n  train:\n    model: {preset: tiny}\n"
      "    data: {path: /usr/share/common-licenses/GPL-3, tokenizer: byte, seq_len: 128}\n"
      "    batch: {micro: 4, global: 48}\n    steps: 100000\n"
      "checkpoint: {every_steps: 100000}\n"
      "recovery: {heartbeat_timeout: 1s, straggler: warn}\ndebug: {chaos: true}\n");
  const auto browser = look({"slow"}, {1280, 1500, false});
  ASSERT_NE(browser, nullptr);
  EXPECT_TRUE(shows(*browser, "4 training"));
  const std::string plan = cluster_.directory() + "/plan.yaml";
  ASSERT_TRUE(
      write_file_atomic(plan, "faults: [{fault: slow-worker, rank: 2, at_step: 6}]\n").ok());
  std::thread chaos([&] {
    cluster_.hpctl({"chaos", to_string(job), "--plan", plan, "--json"}, seconds(240));
  });
  // Of the others none has reached the shade that is over 1.5 times the median.
  EXPECT_TRUE(
      browser->wait_for("return " + shade_of(2) +
                        " >= 4 && [0, 1, 3].every((rank) => "
                        "Number(/heat([0-6])/.exec(document.querySelector("
                        "`#rank-grid .cell[data-rank=\"${rank}\"]`).className)?.[1]) <= 3)"));
  EXPECT_TRUE(browser->wait_for("return " + rank_cell(2) + ".title.startsWith('rank 2 on n2: ')"));
  browser->run("document.querySelector('#shade [value=wait]').click()");
  EXPECT_TRUE(browser->wait_for("return " + shade_of(2) + " <= 2 && " + shade_of(1) + " >= 4"));
  EXPECT_TRUE(shows(*browser, "slow: n2"));
  keep(*browser, "page-slow-rank");
  // The report of `hpctl chaos` ends with the job; the rank would be slow for 40 steps.
  EXPECT_EQ(cluster_.hpctl({"cancel", to_string(job)}).exit_code, 0);
  chaos.join();
  EXPECT_EQ(browser->complaints(), "");
}

// What the map shows of more ranks than a table has is in words as well. The ranks beyond those of
// the job are made up.
TEST_F(Page, OfManyRanksTheSlowestAndTheLongestWaitingAreListed) {
  train();
  const auto browser = look({"quick-brown-fox"}, {});
  ASSERT_NE(browser, nullptr);
  EXPECT_TRUE(shows(*browser, "4 training"));
  EXPECT_EQ(browser->run("return document.querySelectorAll('[data-top]').length"), 0);
  EXPECT_EQ(browser->run("return document.querySelectorAll('#rank-tables tbody tr').length"), 4);
  // 100 ranks: 41 has 400 ms of its own, 77 waits longest, and each a little more than the one
  // before.
  browser->run(
      "clearTimeout(timer); ++round;"
      "return fetch('/api/job?id=1').then((answer) => answer.json()).then((job) => {"
      "  job.rank_rows = Array.from({length: 100}, (_, i) => [i, 'n' + (i >> 3), 'running',"
      "    'training', 9, i === 41 ? 500 : 200 + i / 100, i === 77 ? 150 : 100]);"
      "  showJob(job); window.many = true; })");
  EXPECT_TRUE(browser->wait_for("return window.many === true"));
  const auto first = [](const std::string& list) {
    return "return [...document.querySelectorAll('[data-top=" + list +
           "] tbody tr')].map((row) => row.cells[0].textContent).slice(0, 2).join(' ')";
  };
  EXPECT_EQ(browser->run(first("own")), "41 99");
  EXPECT_EQ(browser->run(first("wait")), "77 0");
  for (const std::string list : {"own", "wait"}) {
    EXPECT_EQ(
        browser->run("return document.querySelectorAll('[data-top=" + list + "] tbody tr').length"),
        20);
  }
  EXPECT_EQ(browser->run("return " + shade_of(41)), 6);
  EXPECT_EQ(browser->run("return " + shade_of(40)), 0);
  // With the keyboard: the switch is one stop of Tab, and an arrow turns it.
  browser->run("document.querySelector('#shade [value=own]').focus()");
  browser->press("\uE014");
  EXPECT_EQ(browser->run("return document.querySelector('#shade [value=wait]').checked"), true);
  EXPECT_EQ(browser->run("return " + shade_of(41)), 2) << "a fifth of its step";
  EXPECT_EQ(browser->run("return " + shade_of(77)), 5) << "three quarters of its";
  EXPECT_EQ(browser->run("return document.activeElement.value"), "wait");
  EXPECT_EQ(browser->complaints(), "");
}

// By hand and by a link: the same steps of all plots, with the address that leads to them.
void look_closer(Browser& browser, JobId job) {
  const std::string zoomed =
      "return Plots.series()?.first[0] === 10 && Plots.series().last.at(-1) === 20";
  const std::string whole = "return Plots.series()?.last.length === 40";
  browser.run("Plots.zoom([10, 20])");
  EXPECT_TRUE(browser.wait_for(zoomed));
  EXPECT_EQ(browser.run("return location.hash"), "#job=" + to_string(job) + "&steps=10-20");
  browser.run("document.querySelector('[data-whole]').click()");
  EXPECT_TRUE(browser.wait_for(whole));
  browser.run("location.hash = '#job=" + to_string(job) + "&steps=10-20'");
  EXPECT_TRUE(browser.wait_for(zoomed));
  EXPECT_EQ(browser.run("return document.querySelector('[data-whole]').hidden"), false);
  // Neither changes the numbers beside a plot.
  const std::string newest =
      "return document.querySelector('[data-chart=loss] .value').textContent";
  const json before = browser.run(newest);
  browser.run("document.querySelector('#plots input[type=checkbox]').click()");
  browser.run(
      "const slider = document.querySelector('#plots input[type=range]');"
      "slider.value = 0.9; slider.dispatchEvent(new Event('input'));");
  EXPECT_EQ(browser.run(newest), before);
  EXPECT_EQ(browser.run("return document.querySelectorAll('[data-chart=loss] canvas').length"), 1);
  EXPECT_EQ(browser.complaints(), "");
}

// The plots of a job that has ended are those of its file, also on a phone.
TEST_F(Page, AnEndedJobHasTheNumbersOfItsMetrics) {
  const JobId job = cluster_.submit(
      "name: short\nnodes: 2\n"
      "workload:\n  train:\n    model: {preset: tiny}\n"
      "    data: {path: /usr/share/common-licenses/GPL-3, tokenizer: byte, seq_len: 64}\n"
      "    batch: {micro: 1, global: 4}\n    steps: 40\n    precision: fp32\n"
      "checkpoint: {every_steps: 20}\n");
  ASSERT_EQ(cluster_.wait_for_end(job, seconds(120)), "FINISHED");
  std::map<uint64_t, json> rows;  // the last line of a step counts
  std::istringstream file(read_file(cluster_.paths().job_metrics(job)).value());
  for (std::string line; std::getline(file, line);) {
    const json row = json::parse(line);
    if (row.contains("loss")) rows[row["step"]] = row;
  }
  ASSERT_EQ(rows.size(), 40U);
  for (const int width : {1280, 390}) {
    const auto browser = look({"short"}, {width, 1500, false});
    ASSERT_NE(browser, nullptr);
    EXPECT_EQ(browser->run("return window.innerWidth"), width) << "no narrower than its window";
    EXPECT_TRUE(browser->wait_for("return Plots.series()?.last_step === 40"));
    const json series = browser->run("return Plots.series()");
    ASSERT_EQ(series["last"].size(), rows.size());
    for (const std::string name : {"loss", "grad_norm", "lr", "tokens_per_s", "step_ms"}) {
      size_t at = 0;
      for (const auto& [step, row] : rows) {
        EXPECT_EQ(series["last"][at], step);
        EXPECT_DOUBLE_EQ(series["columns"][name]["v"][at].get<double>(), row[name].get<double>())
            << name << " of step " << step;
        ++at;
      }
    }
    EXPECT_EQ(browser->run("return Number(document.querySelector("
                           "'[data-chart=loss] .value').textContent)"),
              std::round(rows[40]["loss"].get<double>() * 1e4) / 1e4);
    EXPECT_TRUE(shows(*browser, "step-40.g1"));
    EXPECT_TRUE(browser->wait_for("return document.querySelectorAll('.timeline span').length > 0"));
    EXPECT_EQ(browser->run("return document.documentElement.scrollWidth <= window.innerWidth"),
              true)
        << width;
    EXPECT_EQ(browser->complaints(), "");
    keep(*browser, "page-ended-" + std::to_string(width));
    if (width == 1280) look_closer(*browser, job);
  }
}

// It opens with the error, and with what the rank printed last.
TEST_F(Page, AFailedJobOpensWithItsLastLines) {
  const JobId job = cluster_.submit(
      "name: broken\nworkload: {command: [sh, -c, 'echo the last words; exit 3']}\n"
      "recovery: {max_restarts: 0}\n");
  ASSERT_EQ(cluster_.wait_for_end(job, seconds(60)), "FAILED");
  const auto browser = look({"broken"}, {});
  ASSERT_NE(browser, nullptr);
  EXPECT_TRUE(browser->wait_for(
      "return document.querySelector('#failure .lines')?.textContent.includes('the last words')"));
  EXPECT_EQ(browser->run("return document.querySelector('#failure').hidden"), false);
  EXPECT_EQ(browser->complaints(), "");
}

TEST_F(Page, IsUsableOnAPhoneAndInTheDark) {
  train();
  const auto browser = look({}, {390, 850, true});
  ASSERT_NE(browser, nullptr);
  EXPECT_EQ(browser->run("return window.innerWidth"), 390);
  EXPECT_TRUE(shows(*browser, "quick-brown-fox"));
  browser->run("document.querySelector('tbody a').click()");
  EXPECT_TRUE(shows(*browser, "4 training"));
  EXPECT_EQ(browser->run("return document.documentElement.scrollWidth <= window.innerWidth"), true)
      << "it does not move sideways";
  EXPECT_EQ(browser->run("return matchMedia('(prefers-color-scheme: dark)').matches"), true);
  EXPECT_EQ(browser->complaints(), "");
  let_plots_grow(*browser, 15);
  keep(*browser, "page-phone");
}

}  // namespace
}  // namespace hpctl::testing
