// SPDX-License-Identifier: Apache-2.0
#include "common/process/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace hpctl {
namespace {

// A Slurm step with one processor of a node of 192 must not start 192 threads.
TEST(Processors, AreThoseOfTheAffinity) {
  std::thread([] {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    EXPECT_EQ(allowed_processors(), CPU_COUNT(&all));
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(allowed_processors(), 1);
  }).join();
}

}  // namespace
}  // namespace hpctl
