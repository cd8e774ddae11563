// SPDX-License-Identifier: Apache-2.0
// The terminal of `hpctl top`: full screen by ncurses, from the constructor to the destructor. Its
// old content is back afterwards, however the program ends except by SIGKILL. One at a time; not
// for several threads at once.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "hpctl/top_model.h"

struct screen;  // of curses, whose header is full of macros

namespace hpctl {

class TopTerminal {
 public:
  // Signals wait from here on, until a terminal that was opened has been left. Before the process
  // has other threads, which would take them.
  static void hold_signals();
  // After that. kFailedPrecondition where $TERM names no terminal that it can use, and says so.
  static Result<std::unique_ptr<TopTerminal>> open();
  ~TopTerminal();
  TopTerminal(const TopTerminal&) = delete;
  TopTerminal& operator=(const TopTerminal&) = delete;

  size_t width() const;
  size_t height() const;
  void draw(const std::vector<TopLine>& lines);

  struct Resized {};
  struct Closed {};  // the terminal is gone, or a signal asks for the end
  using Input = std::variant<TopKey, char, Resized, Closed>;
  // The input so far, after at most `timeout_ms`, or when `wake` is readable.
  std::vector<Input> wait(int wake, int timeout_ms);

 private:
  TopTerminal(UniqueFd signals, screen* of, bool colour)
      : signals_(std::move(signals)), screen_(of), colour_(colour) {}

  UniqueFd signals_;  // SIGINT, SIGTERM, SIGHUP, SIGWINCH
  screen* const screen_;
  const bool colour_;
};

}  // namespace hpctl
