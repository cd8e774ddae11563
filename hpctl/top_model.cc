// SPDX-License-Identifier: Apache-2.0
#include "hpctl/top_model.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "common/base/clock.h"
#include "common/job/time_account.h"
#include "hpctl/event_text.h"
#include "hpctl/job_source.h"
#include "hpctl/node_table.h"

namespace hpctl {
namespace {

constexpr size_t kAround = 2;           // lines that are not rows of the list: header and status
constexpr size_t kIndent = 2;           // of a line that goes on with the one before
constexpr size_t kEnd = 1'000'000'000;  // further than there are lines

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool has(const std::string& text, const std::string& part) {
  return lower(text).find(part) != std::string::npos;
}

bool is_like(const ListedJob& job, const std::string& part) {
  const JobSummary& s = job.summary;
  return has(s.name, part) || has(job.user, part) || has(s.state, part) ||
         has(to_string(s.job), part) ||
         std::any_of(s.nodes.begin(), s.nodes.end(),
                     [&](const std::string& node) { return has(node, part); });
}

void add(std::vector<TopLine>& lines, const std::string& text, Colour colour = Colour::kNone) {
  lines.push_back({printable(text), colour});
}

// In as many lines as it takes, broken at spaces.
void add_text(std::vector<TopLine>& lines, size_t width, const std::string& text,
              Colour colour = Colour::kNone) {
  const std::string wrapped = wrap(printable(text), width, kIndent);
  for (size_t begin = 0; begin <= wrapped.size();) {
    const size_t end = std::min(wrapped.find('\n', begin), wrapped.size());
    lines.push_back({wrapped.substr(begin, end - begin), colour});
    begin = end + 1;
  }
}

// Likewise, broken between the parts alone.
void add_parts(std::vector<TopLine>& lines, size_t width, const std::vector<std::string>& parts,
               const std::string& separator, Colour colour = Colour::kNone) {
  std::string line;
  for (const std::string& part : parts) {
    const std::string text = printable(part);
    if (line.empty()) {
      line = text;
    } else if (columns(line + separator + text) <= width) {
      line += separator + text;
    } else {
      lines.push_back({line + separator.substr(0, separator.find(' ')), colour});
      line = std::string(kIndent, ' ') + text;
    }
  }
  if (!line.empty()) lines.push_back({line, colour});
}

void add_table(std::vector<TopLine>& lines, const Table& table) {
  for (const Table::Line& line : table.lines(SIZE_MAX)) {
    lines.push_back({line.text, line.colour});
  }
}

std::vector<std::string> where_time_went(const JobView& job, WallTime now) {
  const TimeAccount account = account_of(job, now);
  std::vector<std::string> parts;
  for (const TimePart& part : parts_of(account)) {
    const double share =
        static_cast<double>(part.ms) / static_cast<double>(std::max<int64_t>(1, account.wall_ms));
    const int64_t percent = std::llround(share * 100);
    if (percent == 0) continue;  // there are ten, most of them next to nothing
    parts.push_back((parts.empty() ? "time: " : "") + std::string(part.name) + " " +
                    format_duration(part.ms) + " (" + std::to_string(percent) + " %)");
  }
  return parts;
}

std::vector<std::string> how_far(const JobView& job, WallTime now) {
  const JobSummary summary = summarize(job, now);
  std::vector<std::string> parts = {"step " + std::to_string(job.step)};
  if (job.total_steps > 0) parts[0] += " of " + std::to_string(job.total_steps);
  if (std::isfinite(job.loss)) parts.push_back("loss " + format_loss(job.loss));
  if (job.tokens_per_second > 0) parts.push_back(short_number(job.tokens_per_second) + " tokens/s");
  if (const auto eta = eta_ms(summary)) parts.push_back("ETA " + short_duration(*eta));
  if (const auto goodput = goodput_of(summary)) {
    parts.push_back("goodput " + format_percent(std::llround(*goodput * 10'000), 10'000));
  }
  return parts;
}

void add_head(std::vector<TopLine>& lines, const JobView& job, size_t width, WallTime now) {
  add_parts(lines, width,
            {"job " + std::to_string(job.job) + " " + job.name, job.state,
             "generation " + std::to_string(job.generation), counted(job.restarts, "restart")},
            "  ", colour_of_state(job.state));
  add_parts(lines, width, how_far(job, now), "  ");
  add_parts(lines, width, where_time_went(job, now), ", ");
  if (!job.reason.empty()) add_text(lines, width, "because: " + job.reason);
  if (!job.last_fault.empty()) add_text(lines, width, "last fault: " + job.last_fault);
}

void add_nodes_and_ranks(std::vector<TopLine>& lines, const JobView& job) {
  const bool has_standbys = std::any_of(job.nodes.begin(), job.nodes.end(),
                                        [](const auto& node) { return node.standbys.has_value(); });
  std::vector<std::string> header = {"NODE", "ROLE", "STATE"};
  if (has_standbys) header.emplace_back("STANDBYS");
  header.emplace_back("NOTE");
  Table nodes(std::move(header));
  for (const NodeView& node : job.nodes) {
    std::vector<std::string> row = {node.name, node.role, node.state};
    if (has_standbys) row.push_back(standbys_text(node));
    row.push_back(node.note);
    nodes.add(std::move(row), colour_of_state(node.state));
  }
  Table ranks({"RANK", "NODE", "PID", "STATE", "PHASE", "STEP"});
  for (const WorkerView& rank : job.workers) {
    ranks.add({std::to_string(rank.rank), rank.node, std::to_string(rank.pid), rank.state,
               rank.phase, std::to_string(rank.step)},
              colour_of_state(rank.state));
  }
  add(lines, "");
  add_table(lines, nodes);
  add(lines, "");
  add_table(lines, ranks);
}

}  // namespace

void TopModel::set_jobs(std::vector<ListedJob> jobs, std::vector<std::string> notes) {
  jobs_ = std::move(jobs);
  notes_ = std::move(notes);
  listed_ = true;
}

void TopModel::set_job(TopJob job) {
  if (opened_) job_ = std::move(job);
}

void TopModel::open(std::string job) {
  opened_ = std::move(job);
  job_.reset();
  part_ = TopPart::kJob;
  scrolled_ = 0;
}

std::optional<TopSubject> TopModel::subject() const {
  if (!opened_) return std::nullopt;
  return TopSubject{*opened_, part_};
}

// Logs are read from their end. The same letter again shows the job.
void TopModel::show(TopPart part) {
  part_ = part_ == part ? TopPart::kJob : part;
  scrolled_ = part_ == TopPart::kLogs ? kEnd : 0;
}

std::vector<ListedJob> TopModel::shown(WallTime now) const {
  std::vector<ListedJob> jobs;
  const std::string part = lower(filter_);
  for (const ListedJob& job : jobs_) {
    const bool is_past =
        has_ended(job.summary.state) && job.summary.ended_at < now.before(kEndedMs);
    if ((!with_ended_ && is_past) || !is_like(job, part)) continue;
    jobs.push_back(job);
  }
  sort_jobs(jobs, order_);
  return jobs;
}

void TopModel::move(int64_t by, TopSize screen, WallTime now) {
  if (opened_) {
    const auto hidden = static_cast<int64_t>(job_lines(screen.width, now).size() + 1) -
                        static_cast<int64_t>(screen.height);
    const int64_t most = std::max<int64_t>(0, hidden);
    const int64_t to = std::min(static_cast<int64_t>(scrolled_), most) + by;
    scrolled_ = static_cast<size_t>(std::clamp<int64_t>(to, 0, most));
    return;
  }
  const std::vector<ListedJob> jobs = shown(now);
  if (jobs.empty()) return;
  int64_t at = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (selected_ == Key{jobs[i].summary.owner, jobs[i].summary.job}) at = static_cast<int64_t>(i);
  }
  at = std::clamp<int64_t>(at + by, 0, static_cast<int64_t>(jobs.size()) - 1);
  const JobSummary& chosen = jobs[static_cast<size_t>(at)].summary;
  selected_ = Key{chosen.owner, chosen.job};
}

void TopModel::press(TopKey key, TopSize screen, WallTime now) {
  const auto page = static_cast<int64_t>(screen.height > kAround + 1 ? screen.height - kAround : 1);
  constexpr int64_t kAll = 1'000'000;
  switch (key) {
    case TopKey::kUp:
      return move(-1, screen, now);
    case TopKey::kDown:
      return move(1, screen, now);
    case TopKey::kPageUp:
      return move(-page, screen, now);
    case TopKey::kPageDown:
      return move(page, screen, now);
    case TopKey::kFirst:
      return move(-kAll, screen, now);
    case TopKey::kLast:
      return move(kAll, screen, now);
    case TopKey::kErase:
      if (typing_ && !filter_.empty()) filter_.pop_back();
      return;
    case TopKey::kEnter:
      if (typing_) {
        typing_ = false;
      } else if (!opened_) {
        move(0, screen, now);  // what is shown as selected is
        if (selected_) open(to_string(selected_->second));
      }
      return;
    case TopKey::kBack:
      if (typing_) filter_.clear();
      typing_ = false;
      opened_.reset();
      return;
  }
}

bool TopModel::type(char letter, WallTime now) {
  if (typing_) {
    constexpr size_t kMost = 64;
    if (std::isprint(static_cast<unsigned char>(letter)) != 0 && filter_.size() < kMost) {
      filter_ += letter;
    }
    return true;
  }
  if (letter == 'q') return false;
  if (letter == 'l' || letter == 'w') {
    if (!opened_) move(0, {}, now);  // what is shown as selected is
    if (!opened_ && selected_) open(to_string(selected_->second));
    if (opened_) show(letter == 'l' ? TopPart::kLogs : TopPart::kWhy);
    return true;
  }
  if (opened_) return true;
  if (letter == '/') typing_ = true;
  if (letter == 'e') with_ended_ = !with_ended_;
  if (letter == 'r') order_.descending = !order_.descending;
  if (letter == 's') {
    const std::vector<std::string> keys = order_keys();
    const auto at = std::find(keys.begin(), keys.end(), order_.key);
    order_.key = at + 1 == keys.end() ? keys.front() : *(at + 1);
  }
  return true;
}

std::string TopModel::status_line() const {
  if (typing_) return "/" + filter_ + "_  (enter: keep, esc: clear)";
  if (!trouble_.empty()) return trouble_;
  if (opened_) {
    return std::string("arrows: scroll   l: ") + (part_ == TopPart::kLogs ? "job" : "logs") +
           "   w: " + (part_ == TopPart::kWhy ? "job" : "why") + "   esc: all jobs   q: quit";
  }
  std::string text = "arrows, enter: open   l: logs   w: why   s: sort by " + order_.key +
                     (order_.descending ? ", greatest first" : "") + "   r: reverse   /: filter" +
                     (filter_.empty() ? "" : " " + filter_) +
                     "   e: " + (with_ended_ ? "without" : "with") + " ended   q: quit";
  return notes_.empty() ? text : notes_.front();
}

std::vector<TopLine> TopModel::list_lines(TopSize screen, WallTime now) const {
  const std::vector<ListedJob> jobs = shown(now);
  const JobTable text = job_rows(jobs, screen.width, now);
  Table table(text.header);
  size_t selected = 0;
  for (size_t j = 0; j < jobs.size(); ++j) {
    table.add(text.rows[j], colour_of_state(jobs[j].summary.state));
    if (selected_ == Key{jobs[j].summary.owner, jobs[j].summary.job}) selected = j;
  }
  const std::vector<Table::Line> all = table.lines(screen.width);
  std::vector<TopLine> lines = {{all.front().text, Colour::kNone, true}};
  const size_t room = screen.height > kAround ? screen.height - kAround : 0;
  // The selected one in sight, with as little moved as can be.
  const size_t first = selected >= room ? selected + 1 - room : 0;
  for (size_t j = first; j < std::min(jobs.size(), first + room); ++j) {
    lines.push_back({all[j + 1].text, all[j + 1].colour, j == selected});
  }
  if (jobs.empty() && room > 0) {
    lines.push_back({!listed_ ? "asking ..."
                     : jobs_.empty()
                         ? "no jobs"
                         : "none of " + counted(static_cast<int64_t>(jobs_.size()), "job") +
                               " is shown: see e and /"});
  }
  return lines;
}

// The logs, or the explanation, below the head.
void TopModel::add_part(std::vector<TopLine>& lines, size_t width) const {
  const bool is_logs = part_ == TopPart::kLogs;
  const std::vector<std::string>& texts = is_logs ? job_->logs : job_->why;
  add(lines, "");
  if (texts.empty()) add(lines, is_logs ? "no rank has written anything yet" : "asking why ...");
  for (const std::string& text : texts) {
    if (is_logs) {
      lines.push_back({shorten(printable(text), width)});
    } else {
      add_text(lines, width, text);
    }
  }
}

std::vector<TopLine> TopModel::job_lines(size_t width, WallTime now) const {
  std::vector<TopLine> lines;
  if (!job_) {
    lines.push_back({"asking about job " + printable(*opened_) + " ..."});
    return lines;
  }
  add_head(lines, job_->view, width, now);
  if (!job_->notice.empty()) add_text(lines, width, job_->notice, Colour::kYellow);
  for (const std::string& finding : job_->findings) {
    add_text(lines, width, "finding: " + finding, Colour::kYellow);
  }
  if (part_ != TopPart::kJob) {
    add_part(lines, width);
    return lines;
  }
  add_nodes_and_ranks(lines, job_->view);
  add(lines, "");
  for (auto event = job_->events.rbegin(); event != job_->events.rend(); ++event) {
    add(lines,
        format_wall_ms(event->wall_ms).substr(11, 12) + "  " + event->type + "  " + event->cause);
  }
  for (TopLine& line : lines) line.text = shorten(line.text, width);
  return lines;
}

std::vector<TopLine> TopModel::plain(WallTime now) const {
  return opened_ ? job_lines(SIZE_MAX, now) : list_lines({SIZE_MAX, SIZE_MAX}, now);
}

std::vector<TopLine> TopModel::layout(TopSize screen, WallTime now) const {
  const auto [width, height] = screen;
  if (height == 0 || width == 0) return {};
  std::vector<TopLine> lines;
  if (opened_) {
    const std::vector<TopLine> all = job_lines(width, now);
    const size_t room = height - 1;
    const size_t most = all.size() > room ? all.size() - room : 0;
    const size_t first = std::min(scrolled_, most);
    const size_t last = std::min(all.size(), first + room);
    lines.assign(all.begin() + static_cast<std::ptrdiff_t>(first),
                 all.begin() + static_cast<std::ptrdiff_t>(last));
  } else {
    lines = list_lines(screen, now);
  }
  lines.resize(height - 1);
  lines.push_back({shorten(printable(status_line()), width), Colour::kDim, false});
  for (TopLine& line : lines) line.text = shorten(line.text, width);
  return lines;
}

}  // namespace hpctl
