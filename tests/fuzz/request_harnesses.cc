// SPDX-License-Identifier: Apache-2.0
// What people's programs ask a controller of: requests of every method, to the services as they are
// served. The first byte says which method, the rest is the request.
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "common/job/job_spec.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/properties.h"
#include "tests/support/raw_call.h"
#include "tests/unit/controller/called_controller.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::fuzz {
namespace {

constexpr std::chrono::seconds kAnswerPatience{10};
// A controller keeps what it was told: after so many inputs there is another one.
constexpr int kInputsOfAController = 2'000;

struct NoEffects final : OwnerEffects {
  void committed(const Committed&) override {}
  void perform(const core::Action&, const core::State&) override {}
  std::vector<core::EventBody> sweep(int64_t) override { return {}; }
  void stalled(int64_t) override {}
};

class AskedController : private CalledController<NoEffects> {
 public:
  AskedController() : CalledController(true), channel_(connect()) {
    core::JobSubmitted submitted;
    submitted.spec = core::small_job("demo");
    submitted.job = JobId{1};
    loop_->post(submitted);
  }

  // A method that answers once.
  grpc::Status ask(const std::string& method, const std::string& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kAnswerPatience);
    return call_raw(channel_, "/hpctl.v1.Controller/" + method, request, context);
  }
  // WatchEvents, until the first event or the end.
  grpc::Status watch(const v1::WatchEventsRequest& request) {
    const auto stub = v1::Controller::NewStub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kAnswerPatience);
    const auto reader = stub->WatchEvents(&context, request);
    v1::Event event;
    if (reader->Read(&event)) context.TryCancel();
    return reader->Finish();
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
};

AskedController& controller() {
  static std::unique_ptr<AskedController> current;
  static int inputs = 0;
  if (current == nullptr || ++inputs % kInputsOfAController == 0) {
    current.reset();
    current = std::make_unique<AskedController>();
  }
  return *current;
}

const google::protobuf::ServiceDescriptor& people_service() {
  return *v1::SubmitRequest::descriptor()->file()->FindServiceByName("Controller");
}

void run_request(std::string_view input) {
  if (input.empty()) return;
  const auto& service = people_service();
  const auto& method = *service.method(static_cast<uint8_t>(input[0]) % service.method_count());
  const std::string bytes(input.substr(1));
  const std::unique_ptr<google::protobuf::Message> request(
      google::protobuf::MessageFactory::generated_factory()
          ->GetPrototype(method.input_type())
          ->New());
  if (!request->ParseFromString(bytes)) return;  // gRPC's own refusal
  grpc::Status status;
  if (method.server_streaming()) {
    // The end of the history that it asks for may never come.
    auto& watch = static_cast<v1::WatchEventsRequest&>(*request);
    watch.set_follow(false);
    status = controller().watch(watch);
  } else {
    status = controller().ask(method.name(), bytes);
  }
  require(status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED, "no answer");
  require(status.error_code() != grpc::StatusCode::INTERNAL &&
              status.error_code() != grpc::StatusCode::UNKNOWN &&
              status.error_code() != grpc::StatusCode::UNAVAILABLE,
          "a refusal without a reason: " + status.error_message());
  require_readable(status.error_message(), "a refusal", true);
  require(controller().ask("GetVersion", "").ok(), "a controller that answers no more");
}

std::string request_to(const char* method, const google::protobuf::Message& request) {
  const int index = people_service().FindMethodByName(method)->index();
  return static_cast<char>(index) + request.SerializeAsString();
}

std::vector<std::string> request_seeds() {
  v1::SubmitRequest submit;
  submit.set_spec_json(to_json_text(core::small_job("another")));
  submit.set_submit_key("key");
  v1::GetJobRequest job;
  job.set_job("demo");
  v1::QuarantineNodeRequest quarantine;
  quarantine.set_job("demo");
  quarantine.set_node("n1");
  quarantine.set_reason("it is slow");
  v1::InjectRequest inject;
  inject.set_job("1");
  inject.set_fault("kill-worker");
  v1::WhyRequest why;
  why.set_job("demo");
  v1::WatchEventsRequest watch;
  watch.set_job("demo");
  std::vector<std::string> seeds = {request_to("Submit", submit),
                                    request_to("GetJob", job),
                                    request_to("QuarantineNode", quarantine),
                                    request_to("Inject", inject),
                                    request_to("Why", why),
                                    request_to("WatchEvents", watch)};
  for (int i = 0; i < people_service().method_count(); ++i) {
    seeds.push_back(std::string(1, static_cast<char>(i)));
  }
  return seeds;
}

}  // namespace

std::vector<Harness> request_harnesses() {
  constexpr size_t kController = size_t{64} << 20;  // a whole one is made anew now and then
  return {{"request", run_request, request_seeds, {}, kController, 4096}};
}

}  // namespace hpctl::fuzz
