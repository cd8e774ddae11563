// SPDX-License-Identifier: Apache-2.0
// The hpctl program where somebody else listens at the address of a job's dead controller: it says
// so, sends nothing that is secret, and believes nothing.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <atomic>
#include <cstring>
#include <list>
#include <thread>

#include "common/job/endpoint.h"
#include "common/job/job_files.h"
#include "common/net/tls_identity.h"
#include "hpctl/exit_codes.h"
#include "tests/support/loopback_port.h"
#include "tests/unit/cli/slurm_submit.h"

namespace hpctl::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Passes on what comes to a port to a socket of the file system, and keeps what the callers sent.
class Relay {
 public:
  explicit Relay(std::string target)
      : target_(std::move(target)), stop_(::eventfd(0, EFD_CLOEXEC)) {
    EXPECT_EQ(::listen(port_.fd(), 16), 0);
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() { stop(); }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const std::string& address() const { return port_.address(); }
  // All that was sent; nothing is passed on any more.
  const std::string& stop() {
    if (thread_.joinable()) {
      EXPECT_EQ(::eventfd_write(stop_.get(), 1), 0);
      thread_.join();
    }
    return heard_;
  }

 private:
  struct Call {
    UniqueFd caller;
    UniqueFd server;
  };

  void run() {
    for (;;) {
      std::vector<pollfd> waits = {{stop_.get(), POLLIN, 0}, {port_.fd(), POLLIN, 0}};
      for (const Call& call : calls_) {
        waits.push_back({call.caller.get(), POLLIN, 0});
        waits.push_back({call.server.get(), POLLIN, 0});
      }
      ASSERT_GT(::poll(waits.data(), waits.size(), -1), 0);
      if (waits[0].revents != 0) return;
      size_t at = 2;
      for (auto call = calls_.begin(); call != calls_.end(); at += 2) {
        const bool goes_on =
            (waits[at].revents == 0 || pass(call->caller.get(), call->server.get(), &heard_)) &&
            (waits[at + 1].revents == 0 || pass(call->server.get(), call->caller.get(), nullptr));
        call = goes_on ? std::next(call) : calls_.erase(call);
      }
      if (waits[1].revents != 0) accept();
    }
  }
  void accept() {
    Call call{UniqueFd(::accept4(port_.fd(), nullptr, nullptr, SOCK_CLOEXEC)),
              UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))};
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, target_.c_str(), target_.size() + 1);
    ASSERT_EQ(::connect(call.server.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    calls_.push_back(std::move(call));
  }
  // False at the end of the stream.
  static bool pass(int from, int to, std::string* kept) {
    std::array<char, 4096> bytes{};
    const ssize_t got = ::recv(from, bytes.data(), bytes.size(), 0);
    if (got <= 0) return false;
    if (kept != nullptr) kept->append(bytes.data(), static_cast<size_t>(got));
    return ::send(to, bytes.data(), static_cast<size_t>(got), MSG_NOSIGNAL) == got;
  }

  const std::string target_;
  const test::LoopbackPort port_;
  const UniqueFd stop_;
  std::list<Call> calls_;
  std::string heard_;
  std::thread thread_;
};

// Tells lies about every job, and says that it cancelled it.
class Liar final : public v1::Controller::Service {
 public:
  Liar(const std::string& socket, const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket, credentials);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
  }
  ~Liar() override { server_->Shutdown(std::chrono::system_clock::now()); }
  int calls() const { return calls_; }

 private:
  grpc::Status GetVersion(grpc::ServerContext*, const v1::GetVersionRequest*,
                          v1::GetVersionResponse*) override {
    ++calls_;
    return grpc::Status::OK;
  }
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*,
                      v1::JobStatus* response) override {
    ++calls_;
    *response = running_job(100, "lie");
    return grpc::Status::OK;
  }
  grpc::Status Cancel(grpc::ServerContext*, const v1::CancelRequest*,
                      v1::CancelResponse* response) override {
    ++calls_;
    response->set_state("CANCELLED");
    return grpc::Status::OK;
  }

  std::atomic<int> calls_{0};
  std::unique_ptr<grpc::Server> server_;
};

class HpctlAndAnImpostor : public SlurmSubmit {
 protected:
  // Job 100 runs as far as is known, and this is where its controller was.
  void job_with_controller_at(const std::string& address) {
    ASSERT_EQ(submit().exit_code, kExitOk);
    slurm_says("RUNNING");
    controller_says("RUNNING");
    ControllerRecord record;
    record.epoch = 1;
    record.address = address;
    record.certificate = make_tls_identity()->certificate;
    record.node = "n7";
    record.pid = 1;
    record.boot_id = "b";
    record.nodes = {"n7"};
    record.scheduler = "slurm";
    const Outcome created = create_controller_record(job_dir(), record);
    ASSERT_TRUE(created.ok()) << created.error().message;
  }
  std::string job_dir() const { return home_.paths().job(JobId{100}); }

  void expect_that_it_learns_nothing(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    const std::string socket = home_.directory() + "/impostor";
    const Liar liar(socket, credentials);
    Relay relay(socket);
    job_with_controller_at(relay.address());
    const std::string unproven = "hpctl: who listens at " + relay.address() +
                                 " (n7) could not prove to be the job's controller 1 and was sent "
                                 "nothing";
    const CommandResult shown = hpctl({"status", "100"});
    EXPECT_EQ(shown.exit_code, kExitOk) << "the record is shown";
    EXPECT_THAT(shown.err, HasSubstr(unproven + "; this is the job's last record"));
    EXPECT_THAT(shown.out, Not(HasSubstr("lie")));
    const CommandResult ordered = hpctl({"nodes", "release", "n0", "--job", "100"});
    EXPECT_EQ(ordered.exit_code, kExitNoController);
    EXPECT_THAT(ordered.err, HasSubstr(unproven));
    const CommandResult cancelled = hpctl({"cancel", "100"});
    EXPECT_EQ(cancelled.exit_code, kExitOk) << cancelled.err;
    EXPECT_THAT(cancelled.err, HasSubstr(unproven + "; asking Slurm to end the job"));
    EXPECT_EQ(text_of(slurm() + "/cancelled"), "100\n");

    const std::string heard = relay.stop();
    EXPECT_NE(heard, "") << "hpctl did call there";
    EXPECT_EQ(heard.find(read_token(job_dir()).value()), std::string::npos);
    EXPECT_EQ(heard.find("authorization"), std::string::npos);
    EXPECT_EQ(liar.calls(), 0);
  }
};

TEST_F(HpctlAndAnImpostor, AnotherCertificateProvesNothing) {
  const TlsIdentity own = make_tls_identity().value();
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({own.private_key, own.certificate});
  expect_that_it_learns_nothing(grpc::SslServerCredentials(options));
}

TEST_F(HpctlAndAnImpostor, NeitherDoesOneThatSpeaksInTheClear) {
  expect_that_it_learns_nothing(grpc::InsecureServerCredentials());
}

}  // namespace
}  // namespace hpctl::testing
