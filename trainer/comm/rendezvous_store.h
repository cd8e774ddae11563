// SPDX-License-Identifier: Apache-2.0
// Gloo's key-value store over a directory that all ranks of one generation share: a key is a file,
// written beside its place and renamed, so that a reader never sees a part of it.
//
// Unlike Gloo's own file store, a wait ends at a deadline with an error that names the missing
// rank, and at abort(). inotify wakes a waiter at once on a local disk; a poll every 20 ms serves
// file systems whose remote changes inotify does not see (NFS, Lustre).
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "trainer/compat/gloo_store.h"

namespace hpctl {

class RendezvousStore final : public compat::Store {
 public:
  // Creates `directory`. Like all members it throws std::runtime_error (Gloo calls them and knows
  // no other way to report failure).
  RendezvousStore(std::string directory, std::chrono::milliseconds timeout);

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

  // Ends every wait, also those to come. Any thread.
  void abort();

 private:
  std::string path_of(const std::string& key) const;
  void wait_for_change(std::chrono::milliseconds at_most);

  std::string directory_;
  std::chrono::milliseconds timeout_;
  std::atomic<bool> aborted_{false};
  UniqueFd inotify_;
  UniqueFd abort_event_;
};

}  // namespace hpctl
