// SPDX-License-Identifier: Apache-2.0
// Who a uid is, for people.
#pragma once

#include <string>

namespace hpctl {

// "alice"; "" where the text is no uid, or this machine knows nobody by it. May wait for a
// directory service, until it has answered once about this uid. Any thread.
std::string user_name(const std::string& uid);

}  // namespace hpctl
