// SPDX-License-Identifier: Apache-2.0
// Slurm's numbers as words. libslurm has them: nothing of a cluster runs here.
#include "slurm-plugins/hpslurm/names.h"

#include <gtest/gtest.h>

namespace hpctl::slurm {
namespace {

TEST(SlurmNames, ReasonsAreToldInTheWordsOfSqueue) {
  EXPECT_EQ(job_reason_name(WAIT_NO_REASON), "None");
  EXPECT_EQ(job_reason_name(WAIT_RESOURCES), "Resources");
  EXPECT_EQ(job_reason_name(WAIT_DEP_INVALID), "DependencyNeverSatisfied");
  EXPECT_EQ(job_reason_name(WAIT_ARRAY_TASK_LIMIT), "JobArrayTaskLimit");
  EXPECT_EQ(job_reason_name(WAIT_QOS_MAX_CPU_PER_USER), "QOSMaxCpuPerUserLimit");
  EXPECT_EQ(job_reason_name(WAIT_PART_CONFIG), "PartitionConfig");  // 178 in Slurm 22.05
}

TEST(SlurmNames, ExpeditedRequeueIsAParameterOfSlurmctld) {
  EXPECT_TRUE(allows_expedited_requeue("enable_configless,enable_expedited_requeue"));
  EXPECT_FALSE(allows_expedited_requeue("enable_configless"));
  EXPECT_FALSE(allows_expedited_requeue(""));
}

}  // namespace
}  // namespace hpctl::slurm
