// SPDX-License-Identifier: Apache-2.0
// How a caller identifies a cluster controller. Without a bundle of certificates (cluster_ca() of
// cluster_conf.h) the connection is plain, and the answer's MUNGE credential identifies the
// service: it comes from root of some machine that has munged's key. With a bundle, the caller
// sends nothing before the other side has shown by TLS a certificate that an authority of the
// bundle signed. There is no fall-back to plain TCP, whatever the other side does. The bundle is
// read for each call, so a new one counts at once. Any thread.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/result.h"

namespace hpctl {

class ClusterTrust {
 public:
  // `path` and text of the bundle; "" = MUNGE alone.
  ClusterTrust(std::string path, std::string bundle)
      : path_(std::move(path)), bundle_(std::move(bundle)) {}

  // Lazy: nothing is connected yet. `address` "HOST:PORT".
  std::shared_ptr<grpc::Channel> channel_to(const std::string& address) const;

  // Why a connection to it fails, as the rest of a sentence that begins with its name. It makes
  // another connection to find out, which blocks until `deadline` at most, besides the look-up of a
  // name. nullopt: neither its certificate nor its protocol is the reason.
  std::optional<std::string> why_refused(const std::string& address,
                                         std::chrono::system_clock::time_point deadline) const;

 private:
  std::string path_;
  std::string bundle_;
};

// As it is configured. kInvalidArgument, with file and remedy, where the bundle cannot be read, has
// no certificate, or none that counts at `now_s` (Unix seconds).
Result<ClusterTrust> cluster_trust(int64_t now_s);

}  // namespace hpctl
