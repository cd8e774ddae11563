// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/cluster_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "common/base/file.h"
#include "common/base/hyperpod.h"
#include "common/base/random_hex.h"
#include "common/rpc/job_channel.h"
#include "common/rpc/munge.h"
#include "common/rpc/status.h"
#include "proto/hpctl/v1/cluster.grpc.pb.h"

namespace hpctl {
namespace {

constexpr size_t kMaxConfBytes = 64U << 10;
constexpr char kName[] = "HPCTL_CLUSTER=";

bool is_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || text.find_first_of(" \t/") != std::string::npos) {
    return false;
  }
  const std::string port = text.substr(colon + 1);
  return !port.empty() && port.size() <= 5 &&
         port.find_first_not_of("0123456789") == std::string::npos && std::stoul(port) > 0 &&
         std::stoul(port) <= 65535;
}

Result<std::string> checked_address(const std::string& text, const std::string& where) {
  if (text.empty() || is_address(text)) return text;
  return Error{ErrorCode::kInvalidArgument,
               where + ": the cluster controller's address is HOST:PORT, not \"" + text + "\""};
}

// The answer's credential, opened. An impostor at the address could have made it of his own.
Result<v1::ClusterJobs> open_answer(const v1::ClusterAnswer& answer, const std::string& nonce,
                                    const std::string& whose) {
  HP_TRY_ASSIGN(const MungeIdentity server, munge_decode(answer.credential()));
  v1::ClusterJobs jobs;
  const bool trusted = server.uid == 0 || server.uid == ::geteuid();
  if (!trusted || !jobs.ParseFromString(server.payload) || jobs.nonce() != nonce) {
    return Error{ErrorCode::kPermissionDenied,
                 whose + " is run by uid " + std::to_string(server.uid) +
                     " or answers something else than was asked; it must be root's or your own"};
  }
  return jobs;
}

using Method = grpc::Status (v1::Cluster::Stub::*)(grpc::ClientContext*, const v1::ClusterCall&,
                                                   v1::ClusterAnswer*);

Result<v1::ClusterJobs> call(const std::string& cluster, Method method, const std::string& payload,
                             const std::string& nonce, std::chrono::milliseconds timeout) {
  const std::string whose = "the cluster controller at " + cluster;
  v1::ClusterCall request;
  HP_TRY_ASSIGN(*request.mutable_credential(), munge_encode(payload, std::nullopt));
  grpc::ChannelArguments arguments = channel_arguments();
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto stub = v1::Cluster::NewStub(grpc::CreateCustomChannel(
      "dns:///" + cluster, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  v1::ClusterAnswer answer;
  const grpc::Status status = ((*stub).*method)(&context, request, &answer);
  if (!status.ok()) {
    const ErrorCode code = error_code(from_grpc(status));
    const char* verb = code == ErrorCode::kUnavailable ? " does not answer: " : ": ";
    return Error{code, whose + verb + status.error_message()};
  }
  return open_answer(answer, nonce, whose);
}

}  // namespace

Result<std::string> cluster_address() {
  if (const char* value = std::getenv("HPCTL_CLUSTER")) {
    return checked_address(value, "HPCTL_CLUSTER");
  }
  const std::string path = system_path("/etc/hpctl/cluster.conf");
  const auto text = read_file(path, kMaxConfBytes);
  if (!text.ok()) {
    if (text.error().code == ErrorCode::kNotFound) return std::string();
    return text.error();
  }
  std::istringstream lines(*text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line.starts_with("#")) continue;
    const std::string where = path + ":" + std::to_string(number);
    if (line.starts_with(kName)) return checked_address(line.substr(sizeof kName - 1), where);
    return Error{ErrorCode::kInvalidArgument,
                 where + ": expected HPCTL_CLUSTER=HOST:PORT or a comment"};
  }
  return std::string();
}

Result<v1::ClusterJob> admit_to_cluster(const std::string& cluster, v1::Admission admission,
                                        std::chrono::milliseconds timeout) {
  HP_TRY_ASSIGN(*admission.mutable_nonce(), random_key());
  HP_TRY_ASSIGN(v1::ClusterJobs answer,
                call(cluster, &v1::Cluster::Stub::Admit, admission.SerializeAsString(),
                     admission.nonce(), timeout));
  if (answer.jobs_size() != 1 || answer.jobs(0).job() != admission.job()) {
    return Error{ErrorCode::kInternal, "the cluster controller answered about another job"};
  }
  return std::move(*answer.mutable_jobs(0));
}

Result<v1::ClusterJobs> list_cluster_jobs(const std::string& cluster,
                                          std::chrono::milliseconds timeout) {
  v1::ClusterQuestion question;
  HP_TRY_ASSIGN(*question.mutable_nonce(), random_key());
  return call(cluster, &v1::Cluster::Stub::ListJobs, question.SerializeAsString(), question.nonce(),
              timeout);
}

}  // namespace hpctl
