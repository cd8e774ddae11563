// SPDX-License-Identifier: Apache-2.0
#include "agent/controller_session.h"

#include <algorithm>
#include <random>
#include <utility>

#include "common/base/log.h"

namespace hpctl::agent {
namespace {

constexpr uint32_t kToldGraceMs = 25'000;          // of Slurm's KillWait, 30 s by default
constexpr int64_t kWelcomeTimeoutMs = 3'000;       // from the end of the attempt to connect
constexpr int64_t kAcknowledgeTimeoutMs = 10'000;  // then the stream is taken for dead

}  // namespace

ControllerSession::ControllerSession(JobId job, std::unique_ptr<ControllerAccess> access,
                                     int wake_fd, const Clock& clock, Agent agent)
    : job_(job),
      access_(std::move(access)),
      wake_fd_(wake_fd),
      clock_(clock),
      agent_(std::move(agent)),
      rng_(std::random_device{}()),
      orphan_(clock.monotonic_ms(), access_->orphan_timeout_ms()),
      side_(wake_fd) {}

template <typename Answer>
void ControllerSession::ask(std::function<Answer()> question,
                            std::function<std::optional<Hopeless>(Answer)> then) {
  auto answer = std::make_shared<std::optional<Answer>>();
  then_ = [answer, then = std::move(then)] { return then(std::move(**answer)); };
  side_.start([answer, question = std::move(question)] { answer->emplace(question()); });
}

void ControllerSession::connect() {
  using Dialled = Result<ControllerAccess::Dialled>;
  ask<Dialled>([this] { return access_->connect(patience_); },
               [this](Dialled answer) { return dialled(std::move(answer)); });
}

std::optional<ControllerSession::Hopeless> ControllerSession::dialled(
    Result<ControllerAccess::Dialled> dialled) {
  orphan_.set_plan(access_->start_plan());
  orphan_.allows(access_->orphan_timeout_ms());
  const int64_t now = clock_.monotonic_ms();
  if (!dialled.ok()) {
    const Error& error = dialled.error();
    if (error.code == ErrorCode::kFailedPrecondition) return Hopeless{0, error.message};
    if (error.message != last_trouble_) log_warning(error.message);
    last_trouble_ = error.message;
    connect_at_ms_ = now + backoff_.next(rng_);
    return std::nullopt;
  }
  if (now < cut_until_ms_) return std::nullopt;  // cut meanwhile: another attempt follows
  link_ = std::make_unique<FaultInjectingLink>(dialled->channel, wake_fd_, clock_);
  link_->send(agent_.registration());
  welcome_by_ms_ = now + dialled->attempt_ms + kWelcomeTimeoutMs;
  look_again_at_ms_ = now + access_->look_every_ms();
  return std::nullopt;
}

void ControllerSession::look_for_successor(int64_t now_ms) {
  look_again_at_ms_ = now_ms + access_->look_every_ms();
  ask<bool>([this] { return access_->is_succeeded(); },
            [this](bool is_succeeded) -> std::optional<Hopeless> {
              if (is_succeeded && link_ && !is_open_) drop("another controller has the job");
              return std::nullopt;
            });
}

void ControllerSession::drop(const std::string& why) {
  const std::string status = link_->finish();
  link_.reset();
  const int64_t now = clock_.monotonic_ms();
  const std::string trouble = why + (status.empty() ? "" : ": " + status);
  if (is_open_ || trouble != last_trouble_) log_warning(trouble);
  last_trouble_ = trouble;
  is_left_alone_ = is_left_alone_ || (is_open_ && told_to_end_);
  is_open_ = false;
  acknowledge_by_ms_ = INT64_MAX;
  orphan_.lost(now);
  connect_at_ms_ = now + backoff_.next(rng_);
}

void ControllerSession::welcomed(const v1::Welcome& welcome) {
  log_info("connected to controller " + std::to_string(welcome.controller_pid()));
  is_open_ = true;
  last_trouble_.clear();
  backoff_.reset();
  patience_.reset();
  orphan_.welcomed(welcome.orphan_timeout_ms());
  if (told_to_end_) link_->send(*told_to_end_);
}

void ControllerSession::told_to_end(v1::AgentMessage message) {
  if (is_open_) link_->send(message);
  told_to_end_ = std::move(message);
}

void ControllerSession::send_report(const v1::AgentMessage& message) {
  if (!is_open_) return;
  if (acknowledge_by_ms_ == INT64_MAX) {
    acknowledge_by_ms_ = clock_.monotonic_ms() + kAcknowledgeTimeoutMs;
  }
  link_->send(message);
}

void ControllerSession::acknowledged(bool more_wait) {
  acknowledge_by_ms_ = more_wait ? clock_.monotonic_ms() + kAcknowledgeTimeoutMs : INT64_MAX;
}

void ControllerSession::read() {
  if (!link_) return;
  while (const auto message = link_->receive()) {
    if (message->job() != job_.value) {
      log_warning("a message for job " + std::to_string(message->job()) + " is ignored");
      continue;
    }
    if (!agent_.on_message(*message)) return;
  }
  if (link_->closed()) drop("the controller does not answer");
  if (link_ && clock_.monotonic_ms() < cut_until_ms_) drop("the network is cut, on purpose");
}

void ControllerSession::read_delayed(int64_t now_ms) {
  if (!link_ || now_ms < link_->next_deadline_ms()) return;
  link_->on_time();
  read();
}

std::optional<ControllerSession::Hopeless> ControllerSession::on_time(int64_t now_ms,
                                                                      bool needs_controller) {
  if (side_.take_end()) {
    if (auto hopeless = std::exchange(then_, nullptr)()) return hopeless;
  }
  if (link_ && !is_open_ && now_ms >= welcome_by_ms_) drop("no welcome from the controller");
  if (is_open_ && now_ms >= acknowledge_by_ms_) drop("reports are not acknowledged");
  if (is_left_alone_) {
    return Hopeless{0, "a signal told the node to end, and its controller is gone", kToldGraceMs};
  }
  if (orphan_.expired(now_ms)) {
    return Hopeless{1, "no controller and no completed step for limits.orphan"};
  }
  if (now_ms < cut_until_ms_ || side_.is_busy()) return std::nullopt;
  if (link_ && !is_open_ && now_ms >= look_again_at_ms_) {
    look_for_successor(now_ms);
  } else if (needs_controller && orphan_.start_controller_now(now_ms)) {
    start_controller();
  } else if (!link_ && now_ms >= connect_at_ms_) {
    connect();
  }
  return std::nullopt;
}

int64_t ControllerSession::due_ms() const {
  int64_t due = std::min(acknowledge_by_ms_, orphan_.expires_at_ms());
  if (link_) due = std::min(due, link_->next_deadline_ms());
  if (link_ && !is_open_) due = std::min(due, welcome_by_ms_);
  if (side_.is_busy()) return due;
  int64_t next = orphan_.next_deadline_ms();
  if (!link_) next = std::min(next, connect_at_ms_);
  if (link_ && !is_open_) next = std::min(next, look_again_at_ms_);
  return std::min(due, std::max(next, cut_until_ms_));
}

void ControllerSession::start_controller() {
  log_info("no controller answers; starting one");
  ask<Outcome>([this] { return access_->start(); },
               [this](const Outcome& started) -> std::optional<Hopeless> {
                 if (!started.ok()) {
                   log_warning(started.error().message);
                   return std::nullopt;
                 }
                 backoff_.reset();
                 // An attempt under way goes on: the controller may only have been slow, unless
                 // there is another one now.
                 connect_at_ms_ = 0;
                 look_again_at_ms_ = 0;
                 return std::nullopt;
               });
}

}  // namespace hpctl::agent
