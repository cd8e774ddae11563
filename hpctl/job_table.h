// SPDX-License-Identifier: Apache-2.0
// Many jobs as a table: which are shown, in which order, what the columns say, and which columns
// there is room for. Of `hpctl ps` and `hpctl top`. Pure: no clock, no terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_summary.h"

namespace hpctl {

struct ListedJob {
  JobSummary summary;
  std::string user;  // name, else the uid as text; "" = not known
  // A problem of the answer itself, for example a silent controller; "" = none.
  std::string doubt;
  int64_t silent_ms = 0;  // its controller has not told anything for so long; 0 = it has just now
};

// Selects the rows to show. Patterns are shell patterns (fnmatch); "" = all.
struct JobFilter {
  std::vector<std::string> states;  // any of these; empty = all
  std::string user;                 // name or uid
  std::string node;                 // pattern; the job has one like it
  std::string name;                 // pattern

  bool matches(const ListedJob& job) const;
};

// "running,LIVE" as states; `live` and `ended` stand for several. kInvalidArgument names what is
// near.
Result<std::vector<std::string>> parse_states(const std::string& text);

struct JobOrder {
  std::string key = "job";  // of a column
  bool descending = false;
};
// "goodput" or "-goodput". kInvalidArgument names the keys.
Result<JobOrder> parse_order(const std::string& text);
// The keys that it takes, in the order of the columns.
std::vector<std::string> order_keys();

// Jobs of which the value is not known come last in either direction; equal ones by job and user.
void sort_jobs(std::vector<ListedJob>& jobs, const JobOrder& order);

struct JobTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>>
      rows;  // one per job, as many cells as the header; printable
};

// For a terminal of `width` columns, two of which are between cells: columns are left out, the
// least important first, until what is left fits; the last one may then be cut by who prints it.
// SIZE_MAX: all columns, whole, as for a pipe. nullopt: NODELIST with them (-w).
JobTable job_rows(const std::vector<ListedJob>& jobs, std::optional<size_t> width, WallTime now);

// "45s", "12m", "3h20m", "2d03h", "128d": at most 6 columns for 270 years.
std::string short_duration(int64_t ms);

}  // namespace hpctl
