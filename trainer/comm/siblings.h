// SPDX-License-Identifier: Apache-2.0
// The communicators of one rank that move bytes only when they are called. Ranks may wait in
// different ones of them: while this rank waits in one, its peers may need bytes that it has begun
// to send in another. So a rank that waits in one of them moves the bytes of all. A rank that waits
// for a network moves none, so what is begun through shared memory must be awaited before it. One
// thread.
#pragma once

#include <vector>

namespace hpctl {

class Siblings {
 public:
  class Member {
   public:
    // Moves what can be moved now. Returns whether something that was begun is not done.
    virtual bool advance() = 0;

   protected:
    ~Member() = default;
  };

  void add(Member* member) { members_.push_back(member); }
  void remove(Member* member) { std::erase(members_, member); }
  // As Member::advance(), of all but this one.
  bool advance_others(const Member* waiting) {
    bool any = false;
    for (Member* member : members_) {
      if (member != waiting && member->advance()) any = true;
    }
    return any;
  }

 private:
  std::vector<Member*> members_;
};

}  // namespace hpctl
