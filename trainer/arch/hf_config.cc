// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/hf_config.h"

#include "common/base/json_file.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "trainer/arch/hf_keys.h"
#include "trainer/arch/registry.h"

namespace hpctl {

using nlohmann::json;

static Error refused(const std::string& path, const HfKeys& keys) {
  constexpr size_t kShownBytes = 500;  // of what is wrong, which quotes the document
  return {ErrorCode::kInvalidArgument, path + ": " + printable_line(keys.problem(), kShownBytes)};
}

void HfKeys::check_class(const char* expected) {
  if (!has("architectures") || document_.at("architectures") == json::array({expected})) return;
  refuse("architectures", std::string("expected [\"") + expected + "\"], found " +
                              json_text(document_.at("architectures"), {.ascii = true}));
}

std::string to_hf_config_text(const HfConfig& config) {
  return architecture_of(config.model).hugging_face.config_text(config);
}

Result<HfConfig> hf_config_from_text(const std::string& text, const std::string& path) {
  HP_TRY_ASSIGN(const json document, json_of_file(text, path));
  if (!document.is_object()) {
    return Error{ErrorCode::kInvalidArgument,
                 path + " is not a JSON object, as the config.json of a model is"};
  }
  HfKeys keys(document);
  const std::string type = keys.text_or("model_type", "");
  const std::optional<Arch> arch = find_hugging_face(type);
  if (!arch) {
    keys.refuse("model_type", "expected " + hugging_face_types() + ", found \"" + type + "\"");
    return refused(path, keys);
  }
  HfConfig config;
  config.model.arch = *arch;
  architecture_of(config.model).hugging_face.read_config(keys, config);
  config.dtype = keys.text_or(keys.has("dtype") ? "dtype" : "torch_dtype", "");
  if (keys.problem().empty()) return config;
  return refused(path, keys);
}

}  // namespace hpctl
