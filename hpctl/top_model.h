// SPDX-License-Identifier: Apache-2.0
// The display of `hpctl top` and the effect of its keys: a list of jobs, or one job. Pure: no
// terminal, no clock, no calls; top_terminal.h draws the lines and passes the keys, fleet.h and
// open_job.h supply the data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/publish/status_files.h"
#include "hpctl/job_table.h"
#include "hpctl/terminal.h"

namespace hpctl {

struct TopLine {
  std::string text;  // printable, at most as wide as the screen
  Colour colour = Colour::kNone;
  bool inverse = false;  // the header, and the job that is selected
};

struct TopSize {
  size_t width = 0;  // columns
  size_t height = 0;
};

// One job as its controller, or its record, knows it.
struct TopJob {
  JobView view;
  std::vector<EventView> events;       // the newest, oldest first
  std::string notice;                  // what the answer is worth; "" = it is live
  std::vector<std::string> logs = {};  // with TopPart::kLogs: last lines, each with its rank
  std::vector<std::string> why = {};   // with TopPart::kWhy: the summary, then the chain of causes
  std::vector<std::string> findings = {};  // of `hpctl watch`, each with what to do
};

// What is shown of a job.
enum class TopPart { kJob, kLogs, kWhy };
struct TopSubject {
  std::string job;
  TopPart part = TopPart::kJob;
  bool operator==(const TopSubject&) const = default;
};

enum class TopKey { kUp, kDown, kPageUp, kPageDown, kFirst, kLast, kEnter, kBack, kErase };

class TopModel {
 public:
  // How long the list shows a job that has ended.
  static constexpr int64_t kEndedMs = 600'000;  // ten minutes

  void set_jobs(std::vector<ListedJob> jobs, std::vector<std::string> notes);
  // For the open job; counts only while it is open.
  void set_job(TopJob job);
  // Why there is no newer answer; "" = there is one. The old data stay.
  void set_trouble(std::string trouble) { trouble_ = std::move(trouble); }
  // Of the list: what is missing from it, and why.
  const std::vector<std::string>& notes() const { return notes_; }

  // `screen`: by its height pages are turned, its width says how many lines there are.
  void press(TopKey key, TopSize screen, WallTime now);
  // A letter. False: to quit.
  bool type(char letter, WallTime now);

  // The open job, by id; nullopt = the list. `open` acts as if it had been chosen.
  std::optional<std::string> opened() const { return opened_; }
  // The same, with what is shown of it.
  std::optional<TopSubject> subject() const;
  void open(std::string job);
  // At most as many lines as the screen has. Text about a job before its tables is wrapped; rows
  // are cut.
  std::vector<TopLine> layout(TopSize screen, WallTime now) const;
  // All of it, for who does not scroll.
  std::vector<TopLine> plain(WallTime now) const;

 private:
  using Key = std::pair<std::string, JobId>;  // uid and job

  std::vector<ListedJob> shown(WallTime now) const;
  std::vector<TopLine> list_lines(TopSize screen, WallTime now) const;
  std::vector<TopLine> job_lines(size_t width, WallTime now) const;
  void add_part(std::vector<TopLine>& lines, size_t width) const;
  void show(TopPart part);
  std::string status_line() const;
  void move(int64_t by, TopSize screen, WallTime now);

  std::vector<ListedJob> jobs_;
  bool listed_ = false;  // there was an answer
  std::vector<std::string> notes_;
  std::string trouble_;
  JobOrder order_;
  bool with_ended_ = false;
  std::string filter_;
  bool typing_ = false;  // the filter
  std::optional<Key> selected_;
  std::optional<std::string> opened_;
  TopPart part_ = TopPart::kJob;
  std::optional<TopJob> job_;
  size_t scrolled_ = 0;  // lines of the open job above the screen
};

}  // namespace hpctl
