// SPDX-License-Identifier: Apache-2.0
#include "hpctl/top_terminal.h"

// Functions, not macros named erase, move and the like.
#define NCURSES_NOMACROS 1
#include <curses.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace hpctl {
namespace {

constexpr int kEscapeMs = 25;  // between the bytes of one key

sigset_t taken_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&set, signal);
  return set;
}

int pair_of(Colour colour) {
  return colour == Colour::kGreen    ? 1
         : colour == Colour::kYellow ? 2
         : colour == Colour::kRed    ? 3
                                     : 0;
}

std::optional<TopKey> key_of(int code) {
  switch (code) {
    case KEY_UP:
      return TopKey::kUp;
    case KEY_DOWN:
      return TopKey::kDown;
    case KEY_PPAGE:
      return TopKey::kPageUp;
    case KEY_NPAGE:
      return TopKey::kPageDown;
    case KEY_HOME:
      return TopKey::kFirst;
    case KEY_END:
      return TopKey::kLast;
    case KEY_ENTER:
    case '\n':
    case '\r':
      return TopKey::kEnter;
    case KEY_LEFT:
    case 27:
      return TopKey::kBack;
    case KEY_BACKSPACE:
    case 127:
    case 8:
      return TopKey::kErase;
    default:
      return std::nullopt;
  }
}

}  // namespace

void TopTerminal::hold_signals() {
  const sigset_t taken = taken_signals();
  ::pthread_sigmask(SIG_BLOCK, &taken, nullptr);
}

Result<std::unique_ptr<TopTerminal>> TopTerminal::open() {
  std::setlocale(LC_CTYPE, "");
  const sigset_t taken = taken_signals();
  UniqueFd signals(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) return errno_error("cannot make a signalfd");
  SCREEN* screen = ::newterm(nullptr, stdout, stdin);
  if (screen == nullptr) {
    const char* kind = std::getenv("TERM");
    return Error{ErrorCode::kFailedPrecondition,
                 "TERM=" + std::string(kind == nullptr ? "" : kind) +
                     " is no terminal that top can use; hpctl ps shows the same once"};
  }
  ::set_escdelay(kEscapeMs);
  ::cbreak();
  ::noecho();
  ::keypad(stdscr, TRUE);
  ::nodelay(stdscr, TRUE);
  ::curs_set(0);
  const char* no_colour = std::getenv("NO_COLOR");
  const bool colour = ::has_colors() && (no_colour == nullptr || *no_colour == '\0');
  if (colour) {
    ::start_color();
    ::use_default_colors();
    ::init_pair(1, COLOR_GREEN, -1);
    ::init_pair(2, COLOR_YELLOW, -1);
    ::init_pair(3, COLOR_RED, -1);
  }
  return std::unique_ptr<TopTerminal>(new TopTerminal(std::move(signals), screen, colour));
}

TopTerminal::~TopTerminal() {
  ::endwin();
  ::delscreen(screen_);
  const sigset_t taken = taken_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &taken, nullptr);
}

size_t TopTerminal::width() const { return static_cast<size_t>(std::max(1, getmaxx(stdscr))); }
size_t TopTerminal::height() const { return static_cast<size_t>(std::max(1, getmaxy(stdscr))); }

void TopTerminal::draw(const std::vector<TopLine>& shown) {
  ::erase();
  int y = 0;
  for (const TopLine& line : shown) {
    attr_t look = line.inverse ? A_REVERSE : line.colour == Colour::kDim ? A_DIM : A_NORMAL;
    if (colour_) look |= static_cast<attr_t>(COLOR_PAIR(pair_of(line.colour)));
    ::attrset(static_cast<int>(look));
    std::string text = line.text;
    if (line.inverse) text.resize(text.size() + width() - std::min(width(), columns(text)), ' ');
    ::mvaddstr(y++, 0, text.c_str());
  }
  ::attrset(A_NORMAL);
  ::refresh();
}

std::vector<TopTerminal::Input> TopTerminal::wait(int wake, int timeout_ms) {
  std::array<pollfd, 3> ready{
      {{STDIN_FILENO, POLLIN, 0}, {signals_.get(), POLLIN, 0}, {wake, POLLIN, 0}}};
  ::poll(ready.data(), ready.size(), timeout_ms);
  std::vector<Input> inputs;
  signalfd_siginfo signal{};
  while (::read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
    if (signal.ssi_signo == SIGWINCH) {
      winsize size{};
      if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) ::resizeterm(size.ws_row, size.ws_col);
      inputs.emplace_back(Resized{});
    } else {
      inputs.emplace_back(Closed{});
    }
  }
  if ((ready[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) inputs.emplace_back(Closed{});
  if ((ready[0].revents & POLLIN) == 0) return inputs;
  bool any = false;
  for (int code = ::getch(); code != ERR; code = ::getch()) {
    any = true;
    if (const auto key = key_of(code)) {
      inputs.emplace_back(*key);
    } else if (code >= ' ' && code < 127) {
      inputs.emplace_back(static_cast<char>(code));
    }
  }
  // Readable, and there is nothing: the other end is closed.
  if (!any) inputs.emplace_back(Closed{});
  return inputs;
}

}  // namespace hpctl
