// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/network/messages.h"

#include "common/base/json_text.h"

namespace hpctl::agent {

std::string to_text(const Meeting& meeting) {
  return json_text(
             nlohmann::ordered_json{{"address", meeting.address}, {"secret", meeting.secret}}) +
         "\n";
}

Result<Meeting> parse_meeting(const std::string& text, const std::string& path) {
  try {
    const auto document = parse_message(text);
    return Meeting{document.at("address").get<std::string>(),
                   document.at("secret").get<std::string>()};
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, path + " cannot be used: " + e.what()};
  }
}

}  // namespace hpctl::agent
