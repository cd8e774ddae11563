// SPDX-License-Identifier: Apache-2.0
#include "common/job/exclusion.h"

#include "common/base/bounded_json.h"
#include "common/base/file.h"
#include "common/base/json_text.h"

namespace hpctl {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Exclusion, nodes, attempt)

namespace {

constexpr size_t kMaxBytes = 16U << 20;

std::string exclusion_path(const std::string& job_dir, uint64_t restart_count) {
  return job_dir + "/excluded-" + std::to_string(restart_count) + ".json";
}

}  // namespace

Outcome write_exclusion(const std::string& job_dir, uint64_t restart_count,
                        const Exclusion& exclusion) {
  return write_file_atomic(exclusion_path(job_dir, restart_count),
                           json_text(nlohmann::json(exclusion), {.indent = 1}) + "\n");
}

Result<Exclusion> read_exclusion(const std::string& job_dir, uint64_t restart_count) {
  const std::string path = exclusion_path(job_dir, restart_count);
  HP_TRY_ASSIGN(const auto text, read_file_if_there(path, kMaxBytes));
  if (!text) return Exclusion{};
  nlohmann::json document;
  try {
    document = parse_json(*text);
    return document.get<Exclusion>();
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, path + ": " + problem_in(document, e)};
  }
}

}  // namespace hpctl
