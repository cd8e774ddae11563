// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/cluster_client.h"

#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "common/base/clock.h"
#include "common/base/random_hex.h"
#include "common/net/host_port.h"
#include "common/net/tcp_probe.h"
#include "common/rpc/cluster_conf.h"
#include "common/rpc/cluster_trust.h"
#include "common/rpc/munge.h"
#include "common/rpc/status.h"
#include "proto/hpctl/v1/cluster.grpc.pb.h"

namespace hpctl {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

// For a connection to one of several. To a node that is off nothing answers, and a process that is
// stopped has its connections accepted by the kernel.
constexpr milliseconds kConnectPatience{1'500};
constexpr int kMaxListed = 20'000;  // more than a cluster controller has

// The answer's credential, opened. An impostor at the address could have made it of his own.
Result<v1::ClusterJobs> open_answer(const v1::ClusterAnswer& answer, const std::string& nonce,
                                    const std::string& whose) {
  HP_TRY_ASSIGN(const MungeIdentity server, munge_decode(answer.credential()));
  v1::ClusterJobs jobs;
  const bool trusted = server.uid == 0 || server.uid == ::geteuid();
  if (!trusted || !jobs.ParseFromString(server.payload) || jobs.nonce() != nonce) {
    return Error{ErrorCode::kPermissionDenied,
                 whose + " is run by uid " + std::to_string(server.uid) +
                     " or does not answer the question; it must be root's or your own"};
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

// The next service to call, with its share of the time that is left.
class Turns {
 public:
  Turns(const std::string& cluster, milliseconds timeout)
      : addresses_(split_addresses(cluster)), deadline_(system_clock::now() + timeout) {}

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
  HP_TRY_ASSIGN(const ClusterTrust trust, cluster_trust(SystemClock().wall_ms() / 1'000));
  const auto channel = trust.channel_to(turn.address);
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
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      return Error{ErrorCode::kFailedPrecondition,
                   whose + " is of a release that does not know this call"};
    }
    const ErrorCode code = error_code(from_grpc(status));
    if (code == ErrorCode::kUnavailable) {
      if (auto why = trust.why_refused(turn.address, turn.answered)) {
        return Error{ErrorCode::kPermissionDenied, whose + *why};
      }
    }
    const char* verb = code == ErrorCode::kUnavailable ? " does not answer: " : ": ";
    return Error{code, whose + verb + status.error_message()};
  }
  return open_answer(answer, question.nonce, whose);
}

// Another service would answer the same, or must not be called for it.
bool is_final(ErrorCode code) {
  return code == ErrorCode::kAlreadyExists || code == ErrorCode::kResourceExhausted ||
         code == ErrorCode::kInvalidArgument;
}

// The first answer that does not fail, else the last error with the texts of all.
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

// From each of the list, in its order, with a separate nonce.
std::vector<ClusterListing> ask_each(const std::string& cluster, milliseconds timeout,
                                     Method method, v1::ClusterQuestion question) {
  std::vector<ClusterListing> listings;
  for (Turns turns(cluster, timeout); turns.has_next();) {
    const Turn turn = turns.next();
    listings.push_back(
        {turn.address, [&]() -> Result<v1::ClusterJobs> {
           HP_TRY_ASSIGN(*question.mutable_nonce(), random_key());
           return ask(turn, {method, question.SerializeAsString(), question.nonce()});
         }()});
  }
  return listings;
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

// The addresses of a name, each "IP:PORT"; none if it has none.
std::vector<std::string> addresses_in_numbers(const std::string& address) {
  std::vector<std::string> numbers;
  const auto there = HostPort::parse(address);
  if (!there.ok()) return numbers;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(there->bare_host().c_str(), nullptr, &wanted, &found) != 0) return numbers;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (; found != nullptr; found = found->ai_next) {
    char ip[NI_MAXHOST];
    if (::getnameinfo(found->ai_addr, found->ai_addrlen, ip, sizeof ip, nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      const bool has_colons = std::string(ip).find(':') != std::string::npos;
      numbers.push_back((has_colons ? "[" + std::string(ip) + "]" : ip) + ":" +
                        std::to_string(there->port));
    }
  }
  return numbers;
}

}  // namespace

bool cluster_takes_connections(const std::string& cluster, milliseconds patience) {
  std::vector<std::string> all;
  for (const std::string& address : split_addresses(cluster)) {
    const auto numbers = addresses_in_numbers(address);
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
  return std::ranges::count(probe_tcp(all, patience), TcpAnswer::kAccepted) > 0;
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

std::vector<ClusterListing> list_fleet_lemons(const std::string& cluster, milliseconds timeout) {
  v1::ClusterQuestion question;
  question.set_lemons(true);
  auto listings = ask_each(cluster, timeout, &v1::Cluster::Stub::ListJobs, question);
  for (ClusterListing& listing : listings) {
    if (!listing.jobs.ok() || listing.jobs->lemons_told()) continue;
    listing.jobs =
        Error{ErrorCode::kFailedPrecondition, "the cluster controller at " + listing.address +
                                                  " is of a release without lemon scores"};
  }
  return listings;
}

std::vector<ClusterListing> open_page_at_each(const std::string& cluster, milliseconds timeout) {
  return ask_each(cluster, timeout, &v1::Cluster::Stub::OpenPage, {});
}

Outcome judge_node_at_each(const std::string& cluster, v1::NodeJudgement judgement,
                           milliseconds timeout) {
  for (Turns turns(cluster, timeout); turns.has_next();) {
    HP_TRY_ASSIGN(*judgement.mutable_nonce(), random_key());
    HP_TRY(ask(turns.next(),
               {&v1::Cluster::Stub::JudgeNode, judgement.SerializeAsString(), judgement.nonce()}));
  }
  return Ok{};
}

std::vector<Result<v1::ClusterJobs>> open_job_at_each(const std::string& cluster, JobId job,
                                                      milliseconds timeout) {
  v1::ClusterQuestion question;
  question.set_job(job.value);
  std::vector<Result<v1::ClusterJobs>> answers;
  for (ClusterListing& listing :
       ask_each(cluster, timeout, &v1::Cluster::Stub::OpenJob, question)) {
    answers.push_back(std::move(listing.jobs));
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
