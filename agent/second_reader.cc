// SPDX-License-Identifier: Apache-2.0
#include "agent/second_reader.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iterator>
#include <utility>
#include <vector>

#include "agent/read_again.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/job/duration_text.h"

namespace hpctl::agent {
namespace {

constexpr uint32_t kSound = 1;  // v1::DamageAnswered::verdict
constexpr uint32_t kDamaged = 2;
constexpr uint32_t kUnreadable = 3;
constexpr size_t kMostOutputBytes = 64U << 10;

template <typename A, typename B>
bool have_one_key(const A& a, const B& b) {
  return a.action_seq() == b.action_seq() && a.action_index() == b.action_index();
}

// As run_confirm() takes them.
std::vector<std::string> command_line(const std::string& program, const v1::ConfirmDamage& order) {
  const v1::FileFault& part = order.part();
  return {program,
          "confirm",
          order.directory(),
          order.checkpoint(),
          std::to_string(order.generation()),
          part.file(),
          std::to_string(part.offset()),
          std::to_string(part.bytes()),
          order.words(),
          order.depth()};
}

// Otherwise the loop called for another descriptor of this number, and to wait would block.
bool is_zombie(const SpawnedProcess& process) {
  siginfo_t status{};
  return ::waitid(P_PIDFD, static_cast<id_t>(process.pidfd.get()), &status,
                  WEXITED | WNOWAIT | WNOHANG) == 0 &&
         status.si_pid != 0;
}

}  // namespace

SecondReader::~SecondReader() {
  for (const Reading& reading : readings_) ::kill(reading.process.pid, SIGKILL);
}

void SecondReader::read(const v1::ConfirmDamage& order) {
  if (answered_.action_seq() != 0 && have_one_key(answered_, order)) return answer_(answered_);
  if (order_ && have_one_key(*order_, order)) return;
  abandon();
  order_ = order;
  log_info("reads " + order.checkpoint() + " again, " +
           (order.depth().empty() ? "which another node called damaged"
                                  : "before older checkpoints are deleted"));
  auto started = start_heard(command_line(program_, order));
  if (!started.ok()) return answer(kUnreadable, started.error().message);
  readings_.push_back(Reading{std::move(started->process), std::move(started->output)});
  present_ = std::prev(readings_.end());
  deadline_ms_ = clock_.monotonic_ms() + order.limit_ms();
  loop_.add(present_->process.pidfd.get(), EPOLLIN,
            [this, ended = present_](uint32_t) { on_exit(ended); });
}

void SecondReader::on_exit(Readings::iterator ended) {
  if (!is_zombie(ended->process)) return;
  const auto output = read_all(ended->output.get(), "hpagent confirm", kMostOutputBytes);
  const auto executed = ended->process.exec_outcome();
  const bool counts = ended == present_;
  loop_.remove(ended->process.pidfd.get());
  ::waitpid(ended->process.pid, nullptr, 0);
  readings_.erase(ended);
  if (!counts) return;
  present_ = readings_.end();
  if (executed && !executed->ok()) return answer(kUnreadable, executed->error().message);
  if (!output.ok()) return answer(kUnreadable, output.error().message);
  answer_line(output->substr(0, output->find('\n')));
}

void SecondReader::answer_line(const std::string& line) {
  const size_t space = line.find(' ');
  const std::string word = line.substr(0, space);
  const std::string what = space == std::string::npos ? "" : line.substr(space + 1);
  if (word == kSaysSound) return answer(kSound, "");
  if (word == kSaysDamaged) return answer(kDamaged, what);
  answer(kUnreadable, word == kSaysUnreadable ? what : "hpagent confirm ended without an answer");
}

void SecondReader::answer(uint32_t verdict, const std::string& what) {
  const v1::ConfirmDamage order = *std::exchange(order_, std::nullopt);
  deadline_ms_ = INT64_MAX;
  answered_.Clear();
  answered_.set_action_seq(order.action_seq());
  answered_.set_action_index(order.action_index());
  answered_.set_verdict(verdict);
  answered_.set_what(what);
  log_info(order.checkpoint() + (verdict == kSound     ? " is sound here"
                                 : verdict == kDamaged ? " is damaged here: " + what
                                                       : " cannot be read here: " + what));
  answer_(answered_);
}

// The process goes on until the kernel lets go of it; on_exit() reaps it.
void SecondReader::abandon() {
  order_.reset();
  deadline_ms_ = INT64_MAX;
  if (present_ == readings_.end()) return;
  ::kill(present_->process.pid, SIGKILL);
  present_ = readings_.end();
}

void SecondReader::on_time(int64_t now_ms) {
  if (now_ms < deadline_ms_) return;
  const std::string limit = duration_text(order_->limit_ms());
  if (present_ != readings_.end()) ::kill(present_->process.pid, SIGKILL);
  present_ = readings_.end();
  answer(kUnreadable, "no answer of the file server within " + limit);
}

}  // namespace hpctl::agent
