// SPDX-License-Identifier: Apache-2.0
// The controller of one job, reached over TCP: what the token opens, and that nothing else does.
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/job/job_files.h"
#include "common/net/role_token.h"
#include "common/net/socket_address.h"
#include "common/rpc/controller_process.h"
#include "common/rpc/job_channel.h"
#include "common/rpc/status.h"
#include "common/slurm/hyperpod.h"
#include "controller/access/handshakes.h"
#include "controller/access/rules.h"
#include "controller/access/tcp_access.h"
#include "controller/leadership/job_mode.h"
#include "tests/fault/job_cluster.h"
#include "tests/support/raw_call.h"
#include "tests/support/whole_lines.h"

namespace hpctl {
namespace {

constexpr int kPatienceMs = 60'000;

void set_deadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  context.set_wait_for_ready(true);  // who may call is the question here, not who may dial
}

std::string text_of(const std::string& path) {
  const auto text = read_file(path);
  return text.ok() ? *text : "";
}

JobSpec waiting_job() {
  JobSpec spec;
  spec.name = "waits";
  spec.nodes = 2;
  spec.command = {"/bin/sleep", "1000"};
  return spec;
}

class TcpAccess : public testing::Test {
 protected:
  void SetUp() override {
    controller_ = cluster_.start_controller("n0");
    const auto record = newest_controller(cluster_.job_dir());
    ASSERT_TRUE(record.ok() && *record) << cluster_.logs();
    record_ = **record;
    token_ = read_token(cluster_.job_dir()).value();
  }
  std::shared_ptr<grpc::Channel> connect(const std::string& token) const {
    return connect_address(record_.address, record_.certificate, token).value();
  }
  std::shared_ptr<grpc::Channel> without_token() const {
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(kTlsName);
    return grpc::CreateCustomChannel(
        record_.address, grpc::SslCredentials({record_.certificate, "", ""}), arguments);
  }
  // GetVersion with this token; "" = without any.
  grpc::Status ping(const std::string& token) {
    grpc::ClientContext context;
    set_deadline(context);
    const auto channel = token.empty() ? without_token() : connect(token);
    v1::GetVersionResponse response;
    return v1::Controller::NewStub(channel)->GetVersion(&context, {}, &response);
  }
  // An empty message to a method.
  static grpc::StatusCode call(const std::shared_ptr<grpc::Channel>& channel,
                               const std::string& method) {
    grpc::ClientContext context;
    set_deadline(context);
    return call_raw(channel, method, "", context).error_code();
  }
  // What the controller says to the first message of an agent stream.
  v1::ControllerMessage register_agent(
      grpc::ClientReaderWriter<v1::AgentMessage, v1::ControllerMessage>& stream,
      const std::string& node) {
    v1::AgentMessage hello = message(node);
    hello.mutable_register_agent()->set_agent_pid(1);
    stream.Write(hello);
    v1::ControllerMessage answer;
    stream.Read(&answer);
    return answer;
  }
  // A connection over which nothing is sent.
  UniqueFd connect_silently() const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = SocketAddress::parse(record_.address).value();
    EXPECT_EQ(::connect(fd.get(), address.get(), address.size()), 0);
    return fd;
  }
  v1::AgentMessage message(const std::string& node) {
    v1::AgentMessage message;
    message.set_job(cluster_.job().value);
    message.set_node(node);
    message.set_boot_id("boot-" + node);
    return message;
  }

  test::JobCluster cluster_{waiting_job()};
  pid_t controller_ = -1;
  ControllerRecord record_;
  std::string token_;
};

TEST_F(TcpAccess, OnlyTheTokenOpens) {
  EXPECT_EQ(ping("").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  std::string wrong = token_;
  wrong.back() = wrong.back() == '0' ? '1' : '0';  // of another job, say
  EXPECT_EQ(ping(wrong).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ping(token_ + "0").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ping(token_.substr(1)).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(ping(token_).ok()) << ping(token_).error_message();
}

TEST_F(TcpAccess, NothingIsSentToWhoeverCannotProveThatItIsTheController) {
  const auto why = [&](const std::string& certificate) {
    const auto channel = connect_address(record_.address, certificate, token_);
    if (!channel.ok()) return std::string("not even dialled");
    const auto status = ping_controller(
        **channel, std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs),
        false);
    return message_of(status);
  };
  EXPECT_EQ(why(record_.certificate), "");
  EXPECT_NE(why(make_tls_identity()->certificate).find("certificate verify failed"),
            std::string::npos);
  EXPECT_EQ(why(""), "not even dialled") << "else the roots of this machine would count";
}

TEST_F(TcpAccess, NobodyIsHeardInTheClear) {
  const auto channel = grpc::CreateChannel(record_.address, grpc::InsecureChannelCredentials());
  const auto status = ping_controller(
      *channel, std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs), false);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

// Every method there is with every token there can be, so that none is forgotten: a call that comes
// through is answered in another way, for it asks for nothing.
TEST_F(TcpAccess, EveryMethodAsEveryRole) {
  const int64_t now_s = SystemClock().wall_ms() / 1000;
  const std::string reader = person_token(token_, TokenRole::kReader, 1000, now_s + 600);
  const std::map<std::string, std::optional<Role>> tokens = {
      {"", std::nullopt},
      {std::string(64, '0'), std::nullopt},
      {agent_token(std::string(64, '0')), std::nullopt},
      {person_token(std::string(64, '0'), TokenRole::kOperator, 0, 0), std::nullopt},
      {person_token(token_, TokenRole::kOperator, 0, now_s - 1), std::nullopt},  // too old
      {"operator" + reader.substr(6), std::nullopt},
      {"owner" + reader.substr(6), std::nullopt},
      {agent_token(token_), Role::kAgent},
      {reader, Role::kReader},
      {person_token(token_, TokenRole::kOperator, 1000, now_s + 600), Role::kOperator},
      {person_token(token_, TokenRole::kOwner, 0, now_s - 1), std::nullopt},
      {person_token(token_, TokenRole::kOwner, 0, now_s + 600), Role::kOwner},
      {token_, Role::kOwner}};
  int let_in = 0;
  for (const auto& [token, role] : tokens) {
    const auto channel = token.empty() ? without_token() : connect(token);
    for (size_t i = 0; i < kRpcs; ++i) {
      const auto rpc = static_cast<Rpc>(i);
      const std::string method = rule_of(rpc).method;
      if (method.starts_with("Cluster.")) continue;
      const auto code =
          call(channel, "/hpctl.v1." + std::string(method).replace(method.find('.'), 1, "/"));
      const std::string what = method + " with " + (token.empty() ? "nothing" : token);
      if (!role) {
        EXPECT_EQ(code, grpc::StatusCode::UNAUTHENTICATED) << what;
      } else if (!may_call(*role, rpc, false)) {
        EXPECT_EQ(code, grpc::StatusCode::PERMISSION_DENIED) << what;
      } else {
        EXPECT_NE(code, grpc::StatusCode::UNAUTHENTICATED) << what;
        EXPECT_NE(code, grpc::StatusCode::PERMISSION_DENIED) << what;
        EXPECT_NE(code, grpc::StatusCode::UNIMPLEMENTED) << what;
        EXPECT_NE(code, grpc::StatusCode::DEADLINE_EXCEEDED) << what;
        ++let_in;
      }
    }
  }
  EXPECT_EQ(let_in, 1 + 6 + 9 + 2 * 14);
  EXPECT_TRUE(ping(token_).ok()) << cluster_.logs();
}

// Orders that are refused change nothing, and who gave them is written down.
TEST_F(TcpAccess, WhoDidWhatAndWhoWasRefusedIsInTheAuditLog) {
  const auto order = [&](const std::string& token, bool cancel) {
    const auto stub = v1::Controller::NewStub(connect(token));
    grpc::ClientContext context;
    set_deadline(context);
    if (cancel) {
      v1::CancelRequest request;
      request.set_job(to_string(cluster_.job()));
      v1::CancelResponse response;
      return stub->Cancel(&context, request, &response).error_code();
    }
    v1::QuarantineNodeRequest request;
    request.set_job(to_string(cluster_.job()));
    request.set_node("n1");
    request.set_reason("link flaps");
    v1::QuarantineNodeResponse response;
    return stub->QuarantineNode(&context, request, &response).error_code();
  };
  const std::string reader = person_token(token_, TokenRole::kReader, 1001, 0);
  const std::string its_operator = person_token(token_, TokenRole::kOperator, 1002, 0);
  EXPECT_EQ(order(agent_token(token_), true), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(order(reader, true), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(order(reader, false), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(order(its_operator, true), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(order(std::string(64, '0'), true), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(order(its_operator, false), grpc::StatusCode::FAILED_PRECONDITION)
      << "let in: the job cannot do without the node";
  EXPECT_NE(cluster_.status()->state(), "CANCELLED");
  EXPECT_EQ(order(token_, true), grpc::StatusCode::OK);

  const std::string path = cluster_.paths("n0").audit_log();
  std::vector<std::string> lines;
  const auto is_written = [&] {
    lines.clear();
    for (const std::string& line : test::whole_lines(text_of(path))) {
      const auto entry = nlohmann::json::parse(line);
      lines.push_back(entry.at("call").get<std::string>() + " " + entry.value("role", "-") + " " +
                      std::to_string(entry.value("uid", -1L)) + " " +
                      entry.at("outcome").get<std::string>());
      EXPECT_EQ(entry.at("from").get<std::string>().find("ipv4:127.0.0.1:"), 0U) << line;
    }
    return lines.size() == 7;
  };
  EXPECT_TRUE(test::eventually(is_written, kPatienceMs)) << text_of(path);
  const std::string self = std::to_string(::geteuid());
  EXPECT_EQ(
      lines,
      (std::vector<std::string>{
          "Cancel agent " + self + " PERMISSION_DENIED", "Cancel reader 1001 PERMISSION_DENIED",
          "QuarantineNode reader 1001 PERMISSION_DENIED", "Cancel operator 1002 PERMISSION_DENIED",
          "Cancel - -1 UNAUTHENTICATED", "QuarantineNode operator 1002 FAILED_PRECONDITION",
          "Cancel owner " + self + " OK"}));
}

// A job's directory as a release has left it whose records knew nothing of agents' tokens.
TEST(JobController, AgentsOfAnOlderReleaseAreLetInWhereTheyMayStillRun) {
  test::JobCluster cluster(waiting_job());
  const std::string token = read_token(cluster.job_dir()).value();
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(dead, nullptr, 0), dead);
  ControllerRecord older;
  older.epoch = 1;
  older.address = "127.0.0.1:9";
  older.certificate = make_tls_identity()->certificate;
  older.node = "n0";
  older.pid = static_cast<uint64_t>(dead);
  older.boot_id = identify_machine().boot_id;
  older.nodes = cluster.nodes();
  older.scheduler = "none";
  auto text = nlohmann::json::parse(to_json_text(older));
  text.erase("agent_tokens");
  text.erase("older_agents");
  ASSERT_TRUE(make_directories(cluster.job_dir() + "/controllers").ok());
  ASSERT_TRUE(
      write_file_atomic(cluster.job_dir() + "/controllers/1.json", text.dump() + "\n").ok());
  // The same agent by both releases' tokens; also at the controller after the next.
  for (const uint64_t epoch : {2, 3}) {
    cluster.start_controller("n0");
    const auto record = cluster.wait_for_epoch(epoch, kPatienceMs);
    ASSERT_TRUE(record) << cluster.logs();
    EXPECT_TRUE(record->agent_tokens);
    EXPECT_TRUE(record->older_agents);
    for (const std::string& shown : {token, agent_token(token)}) {
      const auto links = v1::AgentLink::NewStub(
          connect_address(record->address, record->certificate, shown).value());
      grpc::ClientContext context;
      set_deadline(context);
      const auto stream = links->Connect(&context);
      v1::AgentMessage hello;
      hello.set_job(cluster.job().value);
      hello.set_node("n0");
      hello.set_boot_id("boot");
      hello.mutable_register_agent()->set_agent_pid(1);
      stream->Write(hello);
      v1::ControllerMessage answer;
      EXPECT_TRUE(stream->Read(&answer) && answer.has_welcome()) << cluster.logs();
      context.TryCancel();
      stream->Finish();
    }
    cluster.kill_controller(epoch);
  }
}

// The other way round: to the controller of an older release an agent shows what that one knows.
TEST_F(TcpAccess, AnAgentShowsTheTokenThatTheControllersReleaseKnows) {
  EXPECT_TRUE(record_.agent_tokens);
  EXPECT_FALSE(record_.older_agents);
  const auto connects = [&](const ControllerRecord& record) {
    const auto channel = connect_as_agent(cluster_.job_dir(), record, kAttemptMs);
    return call(channel.value(), "/hpctl.v1.AgentLink/Connect");
  };
  EXPECT_EQ(connects(record_), grpc::StatusCode::INVALID_ARGUMENT) << "let in, and says nothing";
  ControllerRecord older = record_;
  older.agent_tokens = false;
  EXPECT_EQ(connects(older), grpc::StatusCode::PERMISSION_DENIED) << "it came as the owner";
}

TEST_F(TcpAccess, TheTokenStandsForTheOwnerAndForThisJobOnly) {
  const auto stub = cluster_.stub();
  grpc::ClientContext context;
  set_deadline(context);
  v1::GetJobRequest request;
  request.set_job("waits");
  v1::JobStatus status;
  ASSERT_TRUE(stub->GetJob(&context, request, &status).ok());
  EXPECT_EQ(status.job(), cluster_.job().value);
  EXPECT_EQ(status.owner(), std::to_string(::geteuid()));
  EXPECT_EQ(status.nodes(0).name(), "n0");

  grpc::ClientContext another;
  set_deadline(another);
  v1::SubmitRequest submit;
  submit.set_spec_json(to_json_text(waiting_job()));
  v1::SubmitResponse submitted;
  EXPECT_EQ(stub->Submit(&another, submit, &submitted).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(TcpAccess, AMessageThatIsTooLargeIsRefused) {
  const auto stub = cluster_.stub();
  grpc::ClientContext context;
  set_deadline(context);
  v1::WhyRequest request;
  request.set_job(std::string(kMaxMessageBytes + 1, 'x'));
  v1::WhyResponse response;
  EXPECT_EQ(stub->Why(&context, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(ping(token_).ok());
}

// Longer than the attempts of those who do not say how long: who gives up a handshake comes again.
TEST(JobChannel, AnAttemptMayTakeAsLongAsItIsGiven) {
  constexpr std::chrono::milliseconds kAttempt{kAttemptMs + 1'000};
  const UniqueFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto any = SocketAddress::of("127.0.0.1", 0).value();
  ASSERT_EQ(::bind(silent.get(), any.get(), any.size()), 0);
  ASSERT_EQ(::listen(silent.get(), 1), 0);
  const auto port = SocketAddress::of_socket(silent.get())->port();
  const auto channel = connect_address("127.0.0.1:" + std::to_string(port),
                                       make_tls_identity()->certificate, "token", kAttempt.count());
  const auto begin = std::chrono::steady_clock::now();
  grpc::ClientContext context;  // fails with the first attempt
  v1::GetVersionResponse response;
  const auto status = v1::Controller::NewStub(channel.value())->GetVersion(&context, {}, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kAttempt);
}

// Each takes the place of a peer that speaks, for a second: so the agents wait and come in.
TEST_F(TcpAccess, SilentConnectionsDelayOthersAndDoNotHoldThemUp) {
  std::vector<UniqueFd> strangers;
  for (size_t i = 0; i < 2 * Handshakes::kMost; ++i) strangers.push_back(connect_silently());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(ping(token_).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, Handshakes::kPatience);
}

TEST_F(TcpAccess, ASilentConnectionIsClosed) {
  const UniqueFd fd = connect_silently();
  char bytes[512];
  const auto closed = [&] {
    pollfd ready{fd.get(), POLLIN, 0};
    if (::poll(&ready, 1, kHandshakeTimeoutMs * 2) != 1) return false;
    return ::read(fd.get(), bytes, sizeof bytes) <= 0;
  };
  EXPECT_TRUE(test::eventually(closed, kHandshakeTimeoutMs * 3));
}

TEST_F(TcpAccess, ReportsOfAStaleGenerationChangeNothing) {
  const auto links = v1::AgentLink::NewStub(connect(agent_token(token_)));
  grpc::ClientContext context;
  set_deadline(context);
  const auto stream = links->Connect(&context);
  ASSERT_TRUE(register_agent(*stream, "n0").has_welcome())
      << stream->Finish().error_message() << cluster_.logs();
  v1::AgentMessage report = message("n0");
  report.set_report_seq(1);
  report.mutable_checkpoint_committed()->set_generation(77);
  report.mutable_checkpoint_committed()->set_step(1'000);
  ASSERT_TRUE(stream->Write(report));
  v1::ControllerMessage answer;
  do {
    ASSERT_TRUE(stream->Read(&answer));
  } while (!answer.has_report_ack());
  EXPECT_EQ(answer.report_ack().report_seq(), 1U);
  const auto status = cluster_.status();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->checkpoint_step(), 0U);
  context.TryCancel();
}

// Exits that came together are acknowledged together, news or not.
TEST_F(TcpAccess, ExitsThatCameTogetherAreAcknowledgedTogether) {
  const auto links = v1::AgentLink::NewStub(connect(agent_token(token_)));
  grpc::ClientContext context;
  set_deadline(context);
  const auto stream = links->Connect(&context);
  const v1::ControllerMessage welcome = register_agent(*stream, "n0");
  ASSERT_TRUE(welcome.has_welcome()) << stream->Finish().error_message() << cluster_.logs();
  EXPECT_TRUE(welcome.welcome().exits_together());
  v1::AgentMessage report = message("n0");
  report.set_report_seq(4);
  report.mutable_workers_exited()->set_first_report_seq(3);
  for (const int rank : {0, 1}) {
    v1::WorkerExited& exited = *report.mutable_workers_exited()->add_exits();
    exited.set_generation(77);
    exited.set_rank(rank);
  }
  ASSERT_TRUE(stream->Write(report));
  v1::ControllerMessage answer;
  do {
    ASSERT_TRUE(stream->Read(&answer));
  } while (!answer.has_report_ack());
  EXPECT_EQ(answer.report_ack().first_report_seq(), 3U);
  EXPECT_EQ(answer.report_ack().report_seq(), 4U);
  context.TryCancel();
}

TEST_F(TcpAccess, AnAgentOfAnotherJobIsRefused) {
  const auto links = v1::AgentLink::NewStub(connect(agent_token(token_)));
  grpc::ClientContext context;
  set_deadline(context);
  const auto stream = links->Connect(&context);
  v1::AgentMessage hello = message("n0");
  hello.set_job(cluster_.job().value + 1);
  hello.mutable_register_agent()->set_agent_pid(1);
  ASSERT_TRUE(stream->Write(hello)) << stream->Finish().error_message() << cluster_.logs();
  v1::ControllerMessage answer;
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_TRUE(answer.has_refused());
  context.TryCancel();
}

// What no job reaches, in every message that carries a number: one after the other on a stream
// each. Were one of them committed, the controller would end when it reads its rows again.
TEST_F(TcpAccess, NumbersOfNoJobEndTheStreamAndNotTheController) {
  const auto links = v1::AgentLink::NewStub(connect(agent_token(token_)));
  // The status with which the controller ends a stream of these messages; the first registers.
  const auto end_of = [&](const std::vector<v1::AgentMessage>& messages) {
    grpc::ClientContext context;
    set_deadline(context);
    const auto stream = links->Connect(&context);
    for (const v1::AgentMessage& message : messages) stream->Write(message);
    for (v1::ControllerMessage answer; stream->Read(&answer);) {
    }
    return stream->Finish();
  };
  v1::AgentMessage sound = message("n0");
  sound.mutable_register_agent()->set_agent_pid(1);

  std::vector<v1::AgentMessage> hellos(3, sound);
  hellos[0].mutable_register_agent()->set_generation_seen(UINT64_MAX);
  hellos[1].mutable_register_agent()->add_workers()->set_generation(UINT64_MAX);
  hellos[2].mutable_register_agent()->add_workers()->set_rank(INT32_MIN);
  for (const v1::AgentMessage& hello : hellos) {
    EXPECT_EQ(end_of({hello}).error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << hello.ShortDebugString();
  }

  {
    grpc::ClientContext context;
    set_deadline(context);
    const auto stream = links->Connect(&context);
    ASSERT_TRUE(stream->Write(sound));
    v1::ControllerMessage answer;
    ASSERT_TRUE(stream->Read(&answer));
    EXPECT_TRUE(answer.has_welcome()) << "there are rows from here on";
    context.TryCancel();
  }

  v1::AgentMessage report = message("n0");
  report.set_report_seq(1);
  std::vector<v1::AgentMessage> reports(18, report);
  reports[0].mutable_heartbeat()->add_workers()->set_step(UINT64_MAX);
  reports[1].mutable_heartbeat()->add_workers()->set_step_ns(UINT64_MAX);
  reports[2].mutable_heartbeat()->add_workers()->set_generation(UINT64_MAX);
  reports[3].mutable_worker_exited()->set_generation(UINT64_MAX);
  reports[4].mutable_worker_exited()->set_last_step(UINT64_MAX);
  reports[5].mutable_checkpoint_committed()->set_step(UINT64_MAX);
  reports[6].mutable_bad_step()->set_number(UINT64_MAX);
  reports[7].mutable_bad_step()->set_step(UINT64_MAX);
  reports[8].mutable_action_done()->add_workers()->set_generation(UINT64_MAX);
  reports[9].mutable_worker_exited()->add_seals()->set_step(UINT64_MAX);
  for (size_t i = 0; i <= kArenaSlots; ++i) reports[10].mutable_worker_exited()->add_copies();
  reports[11].mutable_worker_exited()->set_parts(-1);
  for (size_t i = 12; i < 15; ++i) reports[i].mutable_worker_exited()->set_parts(4);
  reports[12].mutable_worker_exited()->set_part(4);
  reports[13].mutable_worker_exited()->set_copied_part(4);
  reports[14].mutable_worker_exited()->set_copied_part(-2);
  for (size_t i = 15; i < 18; ++i) reports[i].mutable_workers_exited()->set_first_report_seq(1);
  reports[16].mutable_workers_exited()->add_exits()->set_last_step(UINT64_MAX);
  for (int i = 0; i < 2; ++i) reports[17].mutable_workers_exited()->add_exits();  // 1 to 1
  for (const v1::AgentMessage& bad : reports) {
    EXPECT_EQ(end_of({sound, bad}).error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << bad.ShortDebugString();
  }
  EXPECT_TRUE(ping(token_).ok()) << cluster_.logs();

  cluster_.kill_controller(record_.epoch);
  cluster_.start_controller("n0");
  const auto again = cluster_.wait_for_epoch(record_.epoch + 1, kPatienceMs);
  ASSERT_TRUE(again) << cluster_.logs();
  record_ = *again;
  const auto status = cluster_.status();
  ASSERT_TRUE(status) << cluster_.logs();
  EXPECT_EQ(status->nodes(0).boot_id(), "boot-n0") << "its rows are the same";
  EXPECT_NE(status->state(), "FAILED") << status->reason();
}

TEST_F(TcpAccess, ASecondControllerFindsTheFirstAlive) {
  const pid_t second = cluster_.start_controller("n1");
  EXPECT_EQ(cluster_.wait_for(second, kPatienceMs), kExitSuperseded);
  EXPECT_TRUE(ping(token_).ok());
}

TEST_F(TcpAccess, AHigherEpochMakesItStandBack) {
  ControllerRecord higher = record_;
  higher.epoch = record_.epoch + 1;
  ASSERT_TRUE(create_controller_record(cluster_.job_dir(), higher).ok());
  EXPECT_EQ(cluster_.wait_for(controller_, kPatienceMs), kExitSuperseded);
}

TEST(JobController, WithoutATokenThereIsNoListener) {
  test::JobCluster cluster(waiting_job());
  ASSERT_EQ(::unlink((cluster.job_dir() + "/token").c_str()), 0);
  EXPECT_EQ(cluster.wait_for(cluster.start_controller("n0"), kPatienceMs), kExitFault);
  EXPECT_NE(cluster.logs().find("token"), std::string::npos);
  EXPECT_FALSE(*newest_controller(cluster.job_dir()));
}

TEST(JobController, ASuccessorNeedsSomebodyToSucceed) {
  test::JobCluster cluster(waiting_job());
  const pid_t successor = cluster.start_controller("n0", {"--successor"});
  EXPECT_EQ(cluster.wait_for(successor, kPatienceMs), kExitFault);
  EXPECT_NE(cluster.logs().find("no controller to succeed"), std::string::npos);
}

}  // namespace
}  // namespace hpctl
