// SPDX-License-Identifier: Apache-2.0
// What an agent reads of the groups of ranks on a progress page, of its own release and others.
#include "agent/holder/progress_view.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

#include "common/base/check.h"
#include "common/base/fd.h"

namespace hpctl {
namespace {

using agent::GroupSample;

class GroupsOnThePage : public ::testing::Test {
 protected:
  GroupsOnThePage() : file_(::memfd_create("page", MFD_CLOEXEC)) {
    HP_CHECK(::ftruncate(file_.get(), kProgressPageBytes) == 0);
    void* memory =
        ::mmap(nullptr, kProgressPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    HP_CHECK(memory != MAP_FAILED);
    page_ = static_cast<ProgressPage*>(memory);
    page_->magic = kProgressMagic;
    page_->version = kProgressVersion;
    set_group(0, GroupKind::kWorld, 0, 3, 9, 9);
  }
  ~GroupsOnThePage() override { ::munmap(page_, kProgressPageBytes); }

  void set_group(size_t slot, GroupKind kind, int32_t first, int32_t last, uint64_t begun,
                 uint64_t completed) {
    GroupSlot& to = page_->groups.slots[slot];
    to.first = first;
    to.last = last;
    to.count.begun = begun;
    to.count.completed = completed;
    to.kind = static_cast<uint32_t>(kind);
  }
  agent::ProgressSample sample() const { return ProgressView(file_.get()).sample(); }

  UniqueFd file_;
  ProgressPage* page_ = nullptr;
};

TEST_F(GroupsOnThePage, AreToldWhereRanksMayBeginDifferentCollectives) {
  set_group(1, GroupKind::kTensor, 2, 3, 11, 10);
  set_group(2, GroupKind::kEdge, 3, 1, 5, 5);
  page_->groups.waits_in = 2;
  const std::vector<GroupSample> expected = {
      {static_cast<uint32_t>(GroupKind::kWorld), 0, 3, 9, 9, false},
      {static_cast<uint32_t>(GroupKind::kTensor), 2, 3, 11, 10, true},
      {static_cast<uint32_t>(GroupKind::kEdge), 3, 1, 5, 5, false}};
  EXPECT_EQ(sample().groups, expected);
  EXPECT_EQ(sample().open_collectives, 1U);
}

// Then one total tells all, as it always did.
TEST_F(GroupsOnThePage, AreNotToldOfDataParallelismAlone) {
  set_group(1, GroupKind::kShard, 0, 1, 11, 10);
  set_group(2, GroupKind::kReplicate, 0, 2, 5, 5);
  page_->collectives[1].begun = 11;
  page_->collectives[1].completed = 9;
  EXPECT_TRUE(sample().groups.empty());
  EXPECT_EQ(sample().open_collectives, 2U);
}

TEST_F(GroupsOnThePage, OfAnOlderWorkerAreUnknown) {
  page_->groups.slots[0].kind = 0;
  page_->collectives[0].begun = 3;
  EXPECT_FALSE(sample().damaged);
  EXPECT_TRUE(sample().groups.empty());
  EXPECT_EQ(sample().open_collectives, 3U);
}

TEST_F(GroupsOnThePage, OfALaterReleaseAreLeftOut) {
  set_group(1, GroupKind::kTensor, 2, 3, 11, 10);
  set_group(2, static_cast<GroupKind>(99), 0, 1, 4, 4);
  EXPECT_EQ(sample().groups.size(), 2U);
}

TEST_F(GroupsOnThePage, WithImpossibleNumbersAreDamage) {
  set_group(1, GroupKind::kTensor, -2, 3, 11, 10);
  EXPECT_TRUE(sample().damaged);
  set_group(1, GroupKind::kTensor, 2, 3, ~uint64_t{0}, 10);
  EXPECT_TRUE(sample().damaged);
}

}  // namespace
}  // namespace hpctl
