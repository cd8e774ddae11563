// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/cluster_conf.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "common/base/file.h"
#include "common/base/host.h"
#include "common/base/printable.h"
#include "common/net/host_port.h"

namespace hpctl {
namespace {

constexpr size_t kMaxConfBytes = 64U << 10;
constexpr size_t kShownBytes = 80;  // of what is no address
constexpr char kAddressName[] = "HPCTL_CLUSTER";
constexpr char kCaName[] = "HPCTL_CLUSTER_CA";

// A value, and what an error about it begins with.
struct Told {
  std::string text;
  std::string where;
};

struct ClusterConf {
  Told addresses;
  Told ca;
};

bool is_host_and_port(const std::string& text) {
  const bool is_plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~' && c != '/'; });
  const auto parsed = HostPort::parse(text);
  return is_plain && parsed.ok() && parsed->port > 0;
}

Result<std::string> checked_addresses(const Told& told) {
  const std::vector<std::string> addresses = split_addresses(told.text);
  const std::string shown = "\"" + printable_line(told.text, kShownBytes) + "\"";
  if (told.text.empty()) return told.text;
  if (told.text.ends_with(',') || addresses.size() > kMaxClusterAddresses) {
    return Error{ErrorCode::kInvalidArgument,
                 told.where + ": expected HOST:PORT,HOST:PORT, at most " +
                     std::to_string(kMaxClusterAddresses) + ", not " + shown};
  }
  for (const std::string& address : addresses) {
    if (is_host_and_port(address)) continue;
    return Error{ErrorCode::kInvalidArgument,
                 told.where + ": a cluster controller's address is HOST:PORT, not \"" +
                     printable_line(address, kShownBytes) + "\""};
  }
  return told.text;
}

Result<ClusterConf> read_conf() {
  ClusterConf conf;
  const std::string path = system_path("/etc/hpctl/cluster.conf");
  const auto text = read_file(path, kMaxConfBytes);
  if (!text.ok() && text.error().code == ErrorCode::kNotFound) return conf;
  if (!text.ok()) return text.error();
  std::istringstream lines(*text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line.starts_with("#")) continue;
    const std::string where = path + ":" + std::to_string(number);
    const size_t equals = line.find('=');
    const std::string name = line.substr(0, equals);
    Told* const known = name == kAddressName ? &conf.addresses
                        : name == kCaName    ? &conf.ca
                                             : nullptr;
    if (equals == std::string::npos || known == nullptr) {
      return Error{ErrorCode::kInvalidArgument,
                   where +
                       ": expected HPCTL_CLUSTER=HOST:PORT,..., HPCTL_CLUSTER_CA=FILE or a "
                       "comment"};
    }
    if (!known->where.empty()) {
      return Error{ErrorCode::kInvalidArgument,
                   where + ": " + name + " is there twice, first in " + known->where};
    }
    *known = {line.substr(equals + 1), where};
  }
  return conf;
}

}  // namespace

std::vector<std::string> split_addresses(const std::string& list) {
  std::vector<std::string> addresses;
  std::istringstream in(list);
  for (std::string address; std::getline(in, address, ',');) addresses.push_back(address);
  return addresses;
}

Result<std::string> cluster_address() {
  if (const char* value = std::getenv(kAddressName)) {
    return checked_addresses({value, kAddressName});
  }
  HP_TRY_ASSIGN(const ClusterConf conf, read_conf());
  return checked_addresses(conf.addresses);
}

Result<std::string> cluster_ca() {
  const char* value = std::getenv(kCaName);
  Told told{value == nullptr ? "" : value, kCaName};
  if (told.text.empty()) {
    HP_TRY_ASSIGN(const ClusterConf conf, read_conf());
    told = conf.ca;
    // Not an empty value, which would be no answer to the question.
    if (told.where.empty()) return std::string();
  }
  const std::string& path = told.text;
  if (path.starts_with('/')) return path;
  return Error{ErrorCode::kInvalidArgument,
               told.where + ": expected the absolute path of a bundle of certificates, not \"" +
                   printable_line(path, kShownBytes) + "\""};
}

}  // namespace hpctl
