// SPDX-License-Identifier: Apache-2.0
#include "common/job/node_record_files.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/file.h"

namespace hpctl {
namespace {

int64_t to_ns(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

std::vector<NodeRecord> records_in(std::string_view text) {
  std::vector<NodeRecord> records;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (auto record = node_record_from_json(text.substr(begin, end - begin))) {
      records.push_back(std::move(*record));
    }
    begin = end + 1;
  }
  return records;
}

}  // namespace

NodeRecordFiles::Identity::Identity(const struct stat& status)
    : device(status.st_dev),
      inode(status.st_ino),
      size(status.st_size),
      modified_ns(to_ns(status.st_mtim)),
      changed_ns(to_ns(status.st_ctim)) {}

std::vector<std::string> NodeRecordFiles::newest_files() const {
  auto names = list_directory(directory_);
  if (!names.ok()) return {};
  std::erase_if(*names, [](const std::string& name) { return !name.ends_with(".jsonl"); });
  // Numbers of jobs grow: of two names of digits the longer is the newer. Checks come first.
  std::stable_sort(names->begin(), names->end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) > std::pair(b.size(), b);
  });
  names->resize(std::min(names->size(), kMaxFiles));
  return std::move(*names);
}

std::vector<NodeRecord> NodeRecordFiles::look() {
  opened_ = 0;
  std::vector<NodeRecord> all;
  std::map<std::string, Kept> kept;
  size_t kept_bytes = 0;
  for (const std::string& name : newest_files()) {
    const std::string path = directory_ + "/" + name;
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    const auto bytes = static_cast<size_t>(status.st_size);
    if (bytes > kMaxFileBytes) continue;
    const Identity identity(status);
    Kept file{identity, {}};
    const auto known = kept_.find(name);
    if (known != kept_.end() && known->second.identity == identity) {
      file = std::move(known->second);
    } else {
      ++opened_;
      const auto text = read_file(path, kMaxFileBytes);
      if (!text.ok()) continue;
      file.records = records_in(*text);
    }
    all.insert(all.end(), file.records.begin(), file.records.end());
    if (kept_bytes + bytes > kMaxKeptBytes) continue;
    kept_bytes += bytes;
    kept.emplace(name, std::move(file));
  }
  kept_ = std::move(kept);
  return all;
}

}  // namespace hpctl
