// SPDX-License-Identifier: Apache-2.0
#include "tests/support/terminal_picture.h"

#include <array>
#include <charconv>
#include <utility>

namespace hpctl::test {
namespace {

constexpr const char* kInk = "#d8dce4";
constexpr const char* kPaper = "#1a1d23";
constexpr std::array kColours = {"#4a5060", "#ef6b73", "#7cc47f", "#e0b252",
                                 "#6ea8e8", "#c58be0", "#5fc0c8", "#d8dce4"};

struct Look {
  bool bold = false;
  bool dim = false;
  bool inverse = false;
  int colour = -1;  // place in kColours

  void take(int code) {
    constexpr int kFirstColour = 30;
    if (code == 0) *this = {};
    if (code == 1) bold = true;
    if (code == 2) dim = true;
    if (code == 22) bold = dim = false;
    if (code == 7) inverse = true;
    if (code == 27) inverse = false;
    if (code == 39) colour = -1;
    if (code >= kFirstColour && code < kFirstColour + static_cast<int>(kColours.size())) {
      colour = code - kFirstColour;
    }
  }

  std::string style() const {
    std::string ink = colour < 0 ? kInk : kColours[static_cast<size_t>(colour)];
    std::string paper = kPaper;
    if (inverse) std::swap(ink, paper);
    return "color:" + ink + ";background:" + paper + (bold ? ";font-weight:bold" : "") +
           (dim ? ";opacity:.65" : "");
  }
};

// "2;32" of an escape sequence; what is no number is 0, as terminals take it.
void take_all(std::string_view codes, Look& look) {
  while (true) {
    const size_t end = codes.find(';');
    const std::string_view word = codes.substr(0, end);
    int code = 0;
    std::from_chars(word.data(), word.data() + word.size(), code);
    look.take(code);
    if (end == std::string_view::npos) return;
    codes.remove_prefix(end + 1);
  }
}

std::string escaped(char letter) {
  switch (letter) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    default:
      return {letter};
  }
}

}  // namespace

std::string html_of_terminal(std::string_view captured) {
  Look look;
  std::string html =
      "<body style=\"margin:0\"><pre id=\"terminal\" style=\"display:inline-block;margin:0;"
      "padding:14px 18px;font:14px/1.35 'DejaVu Sans Mono',monospace;color:" +
      std::string(kInk) + ";background:" + kPaper + "\"><span style=\"" + look.style() + "\">";
  while (!captured.empty()) {
    if (captured.starts_with("\x1b[")) {
      const size_t end = captured.find_first_not_of("0123456789;", 2);
      if (end == std::string_view::npos) break;
      if (captured[end] == 'm') take_all(captured.substr(2, end - 2), look);
      html += "</span><span style=\"" + look.style() + "\">";
      captured.remove_prefix(end + 1);
      continue;
    }
    html += escaped(captured.front());
    captured.remove_prefix(1);
  }
  return html + "</span></pre></body>";
}

}  // namespace hpctl::test
