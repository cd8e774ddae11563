// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/cluster_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "common/base/file.h"
#include "common/base/hyperpod.h"
#include "common/base/printable.h"
#include "common/base/random_hex.h"
#include "common/rpc/job_channel.h"
#include "common/rpc/munge.h"
#include "common/rpc/status.h"
#include "proto/hpctl/v1/cluster.grpc.pb.h"

namespace hpctl {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

constexpr size_t kMaxConfBytes = 64U << 10;
constexpr size_t kShownBytes = 80;  // of what is no address
// For a connection to one of several. To a node that is off nothing answers, and a process that is
// stopped has its connections accepted by the kernel.
constexpr milliseconds kConnectPatience{1'500};
constexpr char kName[] = "HPCTL_CLUSTER=";
constexpr int kMaxListed = 20'000;  // more than a cluster controller has

bool is_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  const bool is_plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~' && c != '/'; });
  if (colon == std::string::npos || colon == 0 || !is_plain) return false;
  const std::string port = text.substr(colon + 1);
  return !port.empty() && port.size() <= 5 &&
         port.find_first_not_of("0123456789") == std::string::npos && std::stoul(port) > 0 &&
         std::stoul(port) <= 65535;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> addresses;
  std::istringstream in(list);
  for (std::string address; std::getline(in, address, ',');) addresses.push_back(address);
  return addresses;
}

Result<std::string> checked_address(const std::string& text, const std::string& where) {
  const std::vector<std::string> addresses = split(text);
  if (text.empty()) return text;
  if (text.ends_with(',') || addresses.size() > kMaxClusterAddresses) {
    return Error{ErrorCode::kInvalidArgument, where + ": expected HOST:PORT,HOST:PORT, at most " +
                                                  std::to_string(kMaxClusterAddresses) +
                                                  ", not \"" + printable_line(text, kShownBytes) +
                                                  "\""};
  }
  for (const std::string& address : addresses) {
    if (is_address(address)) continue;
    return Error{ErrorCode::kInvalidArgument,
                 where + ": a cluster controller's address is HOST:PORT, not \"" +
                     printable_line(address, kShownBytes) + "\""};
  }
  return text;
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

struct Question {
  Method method;
  std::string payload;
  std::string nonce;
};

// When to give up on one of the list.
struct Turn {
  std::string address;
  system_clock::time_point connected;
  system_clock::time_point answered;
};

// Who is to be asked next, with its share of the time that is left.
class Turns {
 public:
  Turns(const std::string& cluster, milliseconds timeout)
      : addresses_(split(cluster)), deadline_(system_clock::now() + timeout) {}

  bool has_next() const { return next_ < addresses_.size(); }
  Turn next() {
    const auto now = system_clock::now();
    const auto share = (deadline_ - now) / static_cast<int>(addresses_.size() - next_);
    const bool only_one = addresses_.size() == 1;
    const auto connected =
        now + (only_one ? share : std::min<decltype(share)>(kConnectPatience, share));
    return {addresses_[next_++], connected, now + share};
  }

 private:
  const std::vector<std::string> addresses_;
  const system_clock::time_point deadline_;
  size_t next_ = 0;
};

// False: neither is it connected in time nor has an attempt failed, of which a call would tell why.
bool await_connection(grpc::Channel& channel, system_clock::time_point deadline) {
  auto state = channel.GetState(true);
  while (state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING) {
    if (!channel.WaitForStateChange(state, deadline)) return false;
    state = channel.GetState(true);
  }
  return true;
}

Result<v1::ClusterJobs> ask(const Turn& turn, const Question& question) {
  const std::string whose = "the cluster controller at " + turn.address;
  grpc::ChannelArguments arguments = channel_arguments();
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto channel = grpc::CreateCustomChannel("dns:///" + turn.address,
                                                 grpc::InsecureChannelCredentials(), arguments);
  if (!await_connection(*channel, turn.connected)) {
    return Error{ErrorCode::kUnavailable, whose + " does not answer: no connection in time"};
  }
  v1::ClusterCall request;  // a credential of its own: it is accepted once
  HP_TRY_ASSIGN(*request.mutable_credential(), munge_encode(question.payload, std::nullopt));
  const auto stub = v1::Cluster::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(turn.answered);
  v1::ClusterAnswer answer;
  const grpc::Status status = ((*stub).*question.method)(&context, request, &answer);
  if (!status.ok()) {
    const ErrorCode code = error_code(from_grpc(status));
    const char* verb = code == ErrorCode::kUnavailable ? " does not answer: " : ": ";
    return Error{code, whose + verb + status.error_message()};
  }
  return open_answer(answer, question.nonce, whose);
}

// Another one would say the same, or must not be asked for it.
bool is_final(ErrorCode code) {
  return code == ErrorCode::kAlreadyExists || code == ErrorCode::kResourceExhausted ||
         code == ErrorCode::kInvalidArgument;
}

// Of the first that does not fail, else the last error with what all of them say.
Result<v1::ClusterJobs> first_answer(const std::string& cluster, const Question& question,
                                     milliseconds timeout) {
  Error error{ErrorCode::kInvalidArgument, "there is no address of a cluster controller"};
  std::string said;
  for (Turns turns(cluster, timeout); turns.has_next();) {
    auto answer = ask(turns.next(), question);
    if (answer.ok()) return answer;
    error = answer.error();
    said += (said.empty() ? "" : "; ") + error.message;
    if (is_final(error.code)) break;
  }
  if (!said.empty()) error.message = said;
  return error;
}

Result<Question> question_for_jobs() {
  v1::ClusterQuestion question;
  HP_TRY_ASSIGN(*question.mutable_nonce(), random_key());
  return Question{&v1::Cluster::Stub::ListJobs, question.SerializeAsString(), question.nonce()};
}

// All pages, of at most kMaxListed jobs.
Result<v1::ClusterJobs> ask_for_summaries(const Turn& turn) {
  v1::ClusterQuestion question;
  question.set_summaries(true);
  question.set_ended(true);
  v1::ClusterJobs all;
  do {
    HP_TRY_ASSIGN(*question.mutable_nonce(), random_key());
    HP_TRY_ASSIGN(
        v1::ClusterJobs page,
        ask(turn, {&v1::Cluster::Stub::ListJobs, question.SerializeAsString(), question.nonce()}));
    if (page.jobs_size() == 0) page.set_more(false);
    if (page.more()) {
      const v1::ClusterJob& last = page.jobs(page.jobs_size() - 1);
      question.set_after_uid(last.uid());
      question.set_after_job(last.job());
    }
    all.set_all_users(page.all_users());
    all.set_more(page.more() && all.jobs_size() + page.jobs_size() < kMaxListed);
    all.set_node(page.node());
    for (v1::ClusterJob& job : *page.mutable_jobs()) *all.add_jobs() = std::move(job);
  } while (all.more());
  return all;
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
                 where + ": expected HPCTL_CLUSTER=HOST:PORT,... or a comment"};
  }
  return std::string();
}

Result<v1::ClusterJob> admit_to_cluster(const std::string& cluster, v1::Admission admission,
                                        milliseconds timeout) {
  HP_TRY_ASSIGN(*admission.mutable_nonce(), random_key());
  const Question question{&v1::Cluster::Stub::Admit, admission.SerializeAsString(),
                          admission.nonce()};
  HP_TRY_ASSIGN(v1::ClusterJobs answer, first_answer(cluster, question, timeout));
  if (answer.jobs_size() != 1 || answer.jobs(0).job() != admission.job()) {
    return Error{ErrorCode::kInternal, "the cluster controller answered about another job"};
  }
  return std::move(*answer.mutable_jobs(0));
}

Result<v1::ClusterJobs> list_cluster_jobs(const std::string& cluster, milliseconds timeout) {
  HP_TRY_ASSIGN(const Question question, question_for_jobs());
  return first_answer(cluster, question, timeout);
}

std::vector<ClusterListing> list_summaries(const std::string& cluster, milliseconds timeout) {
  std::vector<ClusterListing> listings;
  for (Turns turns(cluster, timeout); turns.has_next();) {
    const Turn turn = turns.next();
    listings.push_back({turn.address, ask_for_summaries(turn)});
  }
  return listings;
}

std::vector<Result<v1::ClusterJobs>> open_job_at_each(const std::string& cluster, JobId job,
                                                      milliseconds timeout) {
  std::vector<Result<v1::ClusterJobs>> answers;
  for (Turns turns(cluster, timeout); turns.has_next();) {
    const Turn turn = turns.next();
    answers.push_back([&]() -> Result<v1::ClusterJobs> {
      v1::ClusterQuestion question;
      HP_TRY_ASSIGN(*question.mutable_nonce(), random_key());
      question.set_job(job.value);
      return ask(turn,
                 {&v1::Cluster::Stub::OpenJob, question.SerializeAsString(), question.nonce()});
    }());
  }
  return answers;
}

std::vector<v1::ClusterJobs> list_jobs_of_each(const std::string& cluster, milliseconds timeout) {
  std::vector<v1::ClusterJobs> lists;
  for (Turns turns(cluster, timeout); turns.has_next();) {
    const auto question = question_for_jobs();
    if (!question.ok()) return lists;
    auto answer = ask(turns.next(), *question);
    if (answer.ok()) lists.push_back(std::move(*answer));
  }
  return lists;
}

}  // namespace hpctl
