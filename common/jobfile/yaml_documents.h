// SPDX-License-Identifier: Apache-2.0
// The number of documents in a YAML text, in bounded time and memory.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>

namespace hpctl {

// Where the second document's content begins; nullopt = there is at most one document.
// YAML::LoadAll does not end on a text that begins with a comma: its parser never consumes it.
// Throws YAML::Exception for what is not YAML.
std::optional<YAML::Mark> second_document(const std::string& text);

}  // namespace hpctl
