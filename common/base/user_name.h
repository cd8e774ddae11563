// SPDX-License-Identifier: Apache-2.0
// Who a uid is.
#pragma once

#include <sys/types.h>

#include <string>

namespace hpctl {

// "alice"; "" where the text is no uid, or this machine knows nobody by it. May wait for a
// directory service, until it has answered once about this uid. Any thread.
std::string user_name(const std::string& uid);
// The same, as the machine knows it now: it is asked each time, and may make one wait.
std::string ask_for_user_name(uid_t uid);

}  // namespace hpctl
