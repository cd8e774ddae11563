// SPDX-License-Identifier: Apache-2.0
// stdout and stderr of a program that a user calls: closed, on a full disk, read by head.
#pragma once

namespace hpctl {

// At the start: where a standard stream is closed, /dev/null takes its place. Else the first file
// or socket that is opened gets its number, and with that the text.
void open_standard_streams();

// At the end: flushes stdout. Returns `status`, or kExitFailed with a message if that is kExitOk
// and the output was lost. A reader that has gone, as head does, is no loss.
int finish_output(int status);

}  // namespace hpctl
