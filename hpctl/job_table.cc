// SPDX-License-Identifier: Apache-2.0
#include "hpctl/job_table.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <numeric>
#include <tuple>

#include "common/base/printable.h"
#include "common/job/time_account.h"
#include "common/jobfile/nearest_word.h"
#include "common/slurm/node_ranges.h"
#include "hpctl/job_source.h"
#include "hpctl/terminal.h"

namespace hpctl {
namespace {

constexpr const char* kUnknown = "-";
constexpr size_t kGap = 2;
constexpr size_t kNameColumns = 20;
constexpr size_t kUserColumns = 10;
constexpr size_t kReasonColumns = 16;  // less is not worth the place
constexpr size_t kMaxNodeList = 4'096;
constexpr size_t kShownBytes = 80;  // of a word that is not known

const std::vector<std::string>& live_states() {
  static const std::vector<std::string> states = {"PENDING",    "STARTING",  "RUNNING",
                                                  "RECOVERING", "SUSPENDED", "STOPPING"};
  return states;
}

const std::vector<std::string>& ended_states() {
  static const std::vector<std::string> states = {"FINISHED", "FAILED", "CANCELLED", "TIMEOUT"};
  return states;
}

bool is_like(const std::string& pattern, const std::string& text) {
  return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

std::string step_text(const JobSummary& job) {
  if (job.total_steps > 0) return std::to_string(job.step) + "/" + std::to_string(job.total_steps);
  return job.step > 0 ? std::to_string(job.step) : kUnknown;
}

std::string percent_text(const std::optional<double>& share) {
  if (!share) return kUnknown;
  // Never 100 % of what is less.
  return std::to_string(static_cast<int>(std::floor(*share * 100))) + "%";
}

// Of a job that trains, what it last recovered from; of others, why they do not.
std::string reason_text(const ListedJob& job) {
  const JobSummary& summary = job.summary;
  if (!job.doubt.empty()) return job.doubt;
  if (summary.state == "RUNNING") {
    return summary.last_fault.empty() ? "" : "recovered: " + summary.last_fault;
  }
  return summary.state == "FINISHED" ? "" : summary.reason;
}

struct Column {
  const char* key;  // of --sort; "" = none
  const char* header;
  int importance;   // the lowest is left out first
  bool needs_told;  // "-" where nothing but name and state is known
  std::string (*cell)(const ListedJob& job, WallTime now);
  // To sort by; NaN = not known. nullptr = by the cell's text.
  double (*value)(const JobSummary& job);
};

double or_nan(const std::optional<double>& value) { return value.value_or(NAN); }
double positive_or_nan(double value) { return value > 0 ? value : NAN; }

const std::vector<Column>& all_columns() {
  static const std::vector<Column> columns = {
      {"job", "JOB", 100, false,
       [](const ListedJob& j, WallTime) { return to_string(j.summary.job); },
       [](const JobSummary& s) { return static_cast<double>(s.job.value); }},
      {"name", "NAME", 98, false, [](const ListedJob& j, WallTime) { return j.summary.name; },
       nullptr},
      {"user", "USER", 85, false,
       [](const ListedJob& j, WallTime) { return j.user.empty() ? kUnknown : j.user; }, nullptr},
      {"state", "STATE", 99, false,
       [](const ListedJob& j, WallTime) {
         return j.summary.state.empty() ? kUnknown : j.summary.state;
       },
       nullptr},
      {"nodes", "NODES", 65, true,
       [](const ListedJob& j, WallTime) {
         return j.summary.nodes.empty() ? kUnknown : std::to_string(j.summary.nodes.size());
       },
       [](const JobSummary& s) { return positive_or_nan(static_cast<double>(s.nodes.size())); }},
      {"step", "STEP", 90, true, [](const ListedJob& j, WallTime) { return step_text(j.summary); },
       [](const JobSummary& s) { return positive_or_nan(static_cast<double>(s.step)); }},
      {"rate", "TOK/S", 60, true,
       [](const ListedJob& j, WallTime) {
         const double rate = j.summary.tokens_per_second;
         return rate > 0 ? short_number(rate) : kUnknown;
       },
       [](const JobSummary& s) { return positive_or_nan(s.tokens_per_second); }},
      {"eta", "ETA", 75, true,
       [](const ListedJob& j, WallTime) {
         const auto eta = eta_ms(j.summary);
         return eta ? short_duration(*eta) : kUnknown;
       },
       [](const JobSummary& s) {
         const auto eta = eta_ms(s);
         return eta ? static_cast<double>(*eta) : NAN;
       }},
      {"restarts", "RESTARTS", 70, true,
       [](const ListedJob& j, WallTime) { return std::to_string(j.summary.restarts); },
       [](const JobSummary& s) { return static_cast<double>(s.restarts); }},
      {"goodput", "GOODPUT", 80, true,
       [](const ListedJob& j, WallTime) { return percent_text(goodput_of(j.summary)); },
       [](const JobSummary& s) { return or_nan(goodput_of(s)); }},
      {"age", "AGE", 50, true,
       [](const ListedJob& j, WallTime now) {
         const auto age_ms = elapsed_ms(j.summary.submitted_at, now);
         return age_ms ? short_duration(*age_ms) : kUnknown;
       },
       [](const JobSummary& s) {
         return -positive_or_nan(static_cast<double>(s.submitted_at.unix_ms()));
       }},
      {"", "REASON", 97, false, [](const ListedJob& j, WallTime) { return reason_text(j); },
       nullptr}};
  return columns;
}

const Column* find_column(const std::string& key) {
  for (const Column& column : all_columns()) {
    if (!key.empty() && key == column.key) return &column;
  }
  return nullptr;
}

std::string cell_of(const Column& column, const ListedJob& job, WallTime now) {
  if (column.needs_told && !job.summary.is_told()) return kUnknown;
  return printable(column.cell(job, now));
}

bool is(const Column& column, const char* header) {
  return std::string_view(column.header) == header;
}

size_t width_of_all(const std::vector<size_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), (widths.size() - 1) * kGap);
}

// Indices of the columns that there is room for.
std::vector<size_t> fitting(std::vector<size_t> columns, std::vector<size_t> widths, size_t room) {
  while (columns.size() > 1 && width_of_all(widths) > room) {
    size_t least = 0;
    for (size_t i = 1; i < columns.size(); ++i) {
      const auto& all = all_columns();
      if (all[columns[i]].importance < all[columns[least]].importance) least = i;
    }
    columns.erase(columns.begin() + static_cast<std::ptrdiff_t>(least));
    widths.erase(widths.begin() + static_cast<std::ptrdiff_t>(least));
  }
  return columns;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

}  // namespace

std::string short_duration(int64_t ms) {
  const int64_t seconds = std::max<int64_t>(0, ms) / 1000;
  const auto two = [](int64_t n) { return (n < 10 ? "0" : "") + std::to_string(n); };
  if (seconds < 60) return std::to_string(seconds) + "s";
  if (seconds < 3'600) return std::to_string(seconds / 60) + "m";
  if (seconds < 86'400)
    return std::to_string(seconds / 3'600) + "h" + two(seconds % 3'600 / 60) + "m";
  const int64_t days = seconds / 86'400;
  if (days < 100) return std::to_string(days) + "d" + two(seconds % 86'400 / 3'600) + "h";
  return std::to_string(days) + "d";
}

bool JobFilter::matches(const ListedJob& job) const {
  const JobSummary& summary = job.summary;
  if (!states.empty() && std::find(states.begin(), states.end(), summary.state) == states.end()) {
    return false;
  }
  if (!user.empty() && user != job.user && user != summary.owner) return false;
  if (!name.empty() && !is_like(name, summary.name)) return false;
  if (node.empty()) return true;
  return std::any_of(summary.nodes.begin(), summary.nodes.end(),
                     [&](const std::string& has) { return is_like(node, has); });
}

Result<std::vector<std::string>> parse_states(const std::string& text) {
  std::vector<std::string> states;
  std::vector<std::string> known = {"LIVE", "ENDED", "UNKNOWN"};
  for (const auto* list : {&live_states(), &ended_states()}) {
    known.insert(known.end(), list->begin(), list->end());
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = upper(text.substr(begin, end - begin));
    begin = end + 1;
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      const auto nearest = nearest_word(word, known);
      return Error{ErrorCode::kInvalidArgument,
                   "--state: there is no state \"" + printable_line(word, kShownBytes) + "\"" +
                       (nearest ? "; did you mean " + *nearest + "?"
                                : "; live, ended, or one of `hpctl status --help`")};
    }
    const auto* several = word == "LIVE"    ? &live_states()
                          : word == "ENDED" ? &ended_states()
                                            : nullptr;
    if (several == nullptr) {
      states.push_back(word);
    } else {
      states.insert(states.end(), several->begin(), several->end());
    }
  }
  return states;
}

std::vector<std::string> order_keys() {
  std::vector<std::string> keys;
  for (const Column& column : all_columns()) {
    if (*column.key != '\0') keys.emplace_back(column.key);
  }
  return keys;
}

Result<JobOrder> parse_order(const std::string& text) {
  const bool descending = text.starts_with('-');
  const std::string key = descending ? text.substr(1) : text;
  if (find_column(key) != nullptr) return JobOrder{key, descending};
  std::string keys;
  for (const std::string& known : order_keys()) keys += (keys.empty() ? "" : ", ") + known;
  return Error{ErrorCode::kInvalidArgument,
               "--sort: there is no key \"" + printable_line(text, kShownBytes) + "\"; one of " +
                   keys + ", with a - before it for the greatest first"};
}

void sort_jobs(std::vector<ListedJob>& jobs, const JobOrder& order) {
  const Column* column = find_column(order.key);
  if (column == nullptr) return;
  const auto by_job = [](const ListedJob& a, const ListedJob& b) {
    return std::tie(a.summary.job, a.user) < std::tie(b.summary.job, b.user);
  };
  const auto value = [&](const ListedJob& job) {
    const bool unknown = column->needs_told && !job.summary.is_told();
    return unknown ? NAN : column->value(job.summary);
  };
  std::sort(jobs.begin(), jobs.end(), by_job);
  std::stable_sort(jobs.begin(), jobs.end(), [&](const ListedJob& a, const ListedJob& b) {
    if (column->value == nullptr) {
      const std::string left = column->cell(a, WallTime());
      const std::string right = column->cell(b, WallTime());
      return order.descending ? right < left : left < right;
    }
    const double left = value(a);
    const double right = value(b);
    if (std::isnan(left) || std::isnan(right)) return !std::isnan(left) && std::isnan(right);
    return order.descending ? right < left : left < right;
  });
}

JobTable job_rows(const std::vector<ListedJob>& jobs, std::optional<size_t> width, WallTime now) {
  const std::vector<Column>& all = all_columns();
  std::vector<std::vector<std::string>> cells(jobs.size());
  std::vector<size_t> columns_of(all.size());
  std::vector<size_t> widths(all.size());
  const bool is_terminal = width && *width != SIZE_MAX;
  for (size_t c = 0; c < all.size(); ++c) {
    columns_of[c] = c;
    widths[c] = columns(all[c].header);
    const size_t most = !is_terminal         ? SIZE_MAX
                        : is(all[c], "NAME") ? kNameColumns
                        : is(all[c], "USER") ? kUserColumns
                                             : SIZE_MAX;
    for (size_t j = 0; j < jobs.size(); ++j) {
      cells[j].push_back(shorten(cell_of(all[c], jobs[j], now), most));
      widths[c] = std::max(widths[c], columns(cells[j].back()));
    }
  }
  widths.back() = std::min(widths.back(), kReasonColumns);
  const std::vector<size_t> shown = width ? fitting(columns_of, widths, *width) : columns_of;
  JobTable table;
  for (const size_t c : shown) table.header.emplace_back(all[c].header);
  if (!width) table.header.emplace_back("NODELIST");
  for (size_t j = 0; j < jobs.size(); ++j) {
    std::vector<std::string>& row = table.rows.emplace_back();
    for (const size_t c : shown) row.push_back(cells[j][c]);
    if (!width) row.push_back(printable(to_node_ranges(jobs[j].summary.nodes, kMaxNodeList)));
  }
  return table;
}

}  // namespace hpctl
