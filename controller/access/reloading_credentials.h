// SPDX-License-Identifier: Apache-2.0
// TLS of a gRPC server whose certificate is renewed while it serves: each handshake gets the one of
// that moment, connections that there are go on. (What gRPC has in C++ for that, its certificate
// providers, reads files once a second, and the key would have to be in one.)
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "common/authority/served_identity.h"

namespace hpctl {

// For one port of one server, which does not keep it: the caller keeps it, and `served`, until the
// server is gone.
std::shared_ptr<grpc::ServerCredentials> reloading_credentials(const ServedIdentity& served);

}  // namespace hpctl
