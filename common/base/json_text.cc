// SPDX-License-Identifier: Apache-2.0
#include "common/base/json_text.h"

namespace hpctl {
namespace {

template <typename Json>
std::string text_of(const Json& document, JsonForm form) {
  return document.dump(form.indent, ' ', form.ascii, Json::error_handler_t::replace);
}

}  // namespace

std::string json_text(const nlohmann::json& document, JsonForm form) {
  return text_of(document, form);
}

std::string json_text(const nlohmann::ordered_json& document, JsonForm form) {
  return text_of(document, form);
}

}  // namespace hpctl
