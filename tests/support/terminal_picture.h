// SPDX-License-Identifier: Apache-2.0
// A picture of a terminal: what `tmux capture-pane -e` says of a screen, as a page that a browser
// shows. Knows the attributes that hpctl uses: dim, inverse, bold and the eight colours.
#pragma once

#include <string>
#include <string_view>

namespace hpctl::test {

// The element that is the screen.
inline constexpr char kTerminalElement[] = "#terminal";

// HTML of a body. Attributes go on from line to line, as tmux writes them.
std::string html_of_terminal(std::string_view captured);

}  // namespace hpctl::test
