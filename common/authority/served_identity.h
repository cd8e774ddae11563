// SPDX-License-Identifier: Apache-2.0
// The key and certificate that a server shows at present. A renewal replaces them; a server reads
// them at the beginning of each handshake, so existing connections go on. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "common/net/tls_identity.h"

namespace hpctl {

class ServedIdentity {
 public:
  // Never null. Another one is another pointer.
  std::shared_ptr<const TlsIdentity> get() const {
    const std::lock_guard lock(mutex_);
    return identity_;
  }
  void set(TlsIdentity identity) {
    auto next = std::make_shared<const TlsIdentity>(std::move(identity));
    const std::lock_guard lock(mutex_);
    identity_ = std::move(next);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const TlsIdentity> identity_ = std::make_shared<const TlsIdentity>();
};

}  // namespace hpctl
