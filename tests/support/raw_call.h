// SPDX-License-Identifier: Apache-2.0
// A call of a method, by name, with bytes that need not be a message.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

namespace hpctl {

// What the server makes of `request`. Its deadline, and what else goes with it, is the context's.
inline grpc::Status call_raw(const std::shared_ptr<grpc::Channel>& channel,
                             const std::string& method, const std::string& request,
                             grpc::ClientContext& context) {
  grpc::GenericStub stub(channel);
  const grpc::Slice bytes(request);
  const grpc::ByteBuffer message(&bytes, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> answered;
  stub.UnaryCall(&context, method, {}, &message, &response,
                 [&answered](grpc::Status status) { answered.set_value(std::move(status)); });
  return answered.get_future().get();
}

}  // namespace hpctl
