// SPDX-License-Identifier: Apache-2.0
#include "hpctl/other_owner.h"

#include "common/job/directory_owner.h"

namespace hpctl {

Result<std::string> find_other_owner(const JobView& job, const std::string& directory) {
  HP_TRY_ASSIGN(const auto owner, read_directory_owner(directory));
  const bool is_other = owner && !is_command(owner->owner) && !job.job_uuid.empty() &&
                        owner->owner.uuid != job.job_uuid;
  return is_other ? describe(owner->owner) : std::string();
}

}  // namespace hpctl
