// SPDX-License-Identifier: Apache-2.0
// The name of a uid.
#pragma once

#include <sys/types.h>

#include <string>

namespace hpctl {

// "alice"; "" if the text is no uid, or this machine does not know it. May wait for a directory
// service, until it has answered once about this uid. Any thread.
std::string user_name(const std::string& uid);
// The same, as the machine knows it now: each call asks the machine again, and may wait.
std::string ask_for_user_name(uid_t uid);

}  // namespace hpctl
