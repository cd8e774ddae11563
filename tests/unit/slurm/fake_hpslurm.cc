// SPDX-License-Identifier: Apache-2.0
// hpslurm without Slurm, for the tests of its client and of hpctl: knows jobs that are lines of a
// file, and faults. Both lie in $FAKE_HPSLURM: `jobs` holds "ID COMMENT" lines, `job-ID.json` what
// is known of a job that does not just wait, `faults` lines "CALL FAULT …"; the first one that
// names a call is taken away and happens instead of the answer. Every call's name is appended to
// `calls`; `submission` is the newest. With a file `expedites` its Slurm has --requeue=expedite.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/net/frame.h"
#include "common/slurm/slurm_messages_json.h"

namespace hpctl {
namespace {

using nlohmann::json;

std::string path(const char* name) { return std::string(std::getenv("FAKE_HPSLURM")) + "/" + name; }

std::vector<std::string> lines(const char* name) {
  std::ifstream in(path(name));
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

void append(const char* name, const std::string& line) {
  std::ofstream(path(name), std::ios::app) << line << "\n";
}

// What is to happen to this call instead of its answer; "" = nothing.
std::string take_fault(const std::string& call) {
  std::vector<std::string> faults = lines("faults");
  const auto at = std::find_if(faults.begin(), faults.end(), [&](const std::string& line) {
    return line.rfind(call + " ", 0) == 0;
  });
  if (at == faults.end()) return "";
  const std::string fault = at->substr(call.size() + 1);
  faults.erase(at);
  std::string rest;
  for (const std::string& line : faults) rest += line + "\n";
  HP_CHECK(write_file_atomic(path("faults"), rest).ok());
  return fault;
}

uint64_t accept_job(const json& arguments) {
  const uint64_t id = 100 + lines("jobs").size();
  HP_CHECK(write_file_atomic(path("submission"), arguments.dump()).ok());
  append("jobs", std::to_string(id) + " " + arguments.at("comment").get<std::string>());
  return id;
}

json jobs_with(const std::string& comment) {
  json found = json::array();
  for (const std::string& line : lines("jobs")) {
    SlurmJob job;
    std::istringstream(line) >> job.id.value >> job.comment;
    job.state = "PENDING";
    if (job.comment == comment) found.push_back(job);
  }
  return found;
}

json describe(uint64_t id) {
  const auto known = read_file(path(("job-" + std::to_string(id) + ".json").c_str()));
  if (known.ok()) return {{"result", json::parse(*known)}};
  const bool submitted = id >= 100 && id < 100 + lines("jobs").size();
  if (!submitted) return {{"error", {{"kind", "not_found"}, {"message", "no such job"}}}};
  SlurmJob job;
  job.id.value = id;
  job.state = "PENDING";
  job.reason = "Resources";
  return {{"result", job}};
}

json answer(const std::string& call, const json& arguments) {
  if (call == "version") {
    const bool expedites = read_file(path("expedites")).ok();
    return {{"result", SlurmVersion{"22.05.8", "22.05.8", {"ctl1", "ctl2"}, "c1", expedites}}};
  }
  if (call == "submit") return {{"result", {{"job", accept_job(arguments)}}}};
  if (call == "nodes") return {{"result", std::vector<SlurmNode>(4)}};
  if (call == "job") return describe(arguments.at("job"));
  if (call == "jobs_by_comment") return {{"result", jobs_with(arguments.at("comment"))}};
  if (call == "cancel") append("cancelled", std::to_string(arguments.at("job").get<uint64_t>()));
  return {{"result", json::object()}};
}

[[noreturn]] void die(const std::string& words) {
  std::cerr << words << std::endl;
  std::_Exit(1);
}

// True when the fault took the place of an answer.
bool happen(const std::string& fault, const json& arguments) {
  std::istringstream in(fault);
  std::string kind;
  in >> kind;
  std::string rest;
  std::getline(in >> std::ws, rest);
  if (kind == "hang") ::pause();
  if (kind == "meanwhile") HP_CHECK(std::system(rest.c_str()) == 0);  // then the ordinary answer
  if (kind == "die") die(rest);
  if (kind == "accept-and-die") {
    accept_job(arguments);
    die(rest);
  }
  if (kind == "accept-late") accept_job(arguments);  // and once more, by the ordinary answer
  if (kind == "garbage") HP_CHECK(write_frame(0, "\xff{", kNoDeadline).ok());
  if (kind == "torn" || kind == "huge") {
    HP_CHECK(
        write_all(0, kind == "torn" ? std::string("\x09\0\0\0{", 5) : "\xff\xff\xff\xff", "").ok());
    die(kind);
  }
  if (kind == "refuse") {
    const std::string code = rest.substr(0, rest.find(' '));
    const json error = {{"kind", code}, {"message", rest.substr(code.size() + 1)}};
    HP_CHECK(write_frame(0, json{{"error", error}}.dump(), kNoDeadline).ok());
  }
  return kind == "garbage" || kind == "refuse";
}

}  // namespace
}  // namespace hpctl

int main() {
  using namespace hpctl;
  for (;;) {
    const auto request = read_frame(0, kNoDeadline);
    if (!request.ok()) return 0;
    const json message = json::parse(*request);
    const std::string call = message.at("call");
    const json& arguments = message.at("arguments");
    append("calls", call);
    if (happen(take_fault(call), arguments)) continue;
    HP_CHECK(write_frame(0, answer(call, arguments).dump(), kNoDeadline).ok());
  }
}
