// SPDX-License-Identifier: Apache-2.0
#include "common/jobfile/yaml_text.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "common/base/file.h"
#include "common/base/printable.h"
#include "common/jobfile/yaml_documents.h"

namespace hpctl {
namespace {

// The first tab in the indentation of lines up to `last_line` (from 0), as a problem.
std::optional<JobYamlProblem> tab_in_indentation(std::string_view text, int last_line) {
  int line = 0;
  for (size_t begin = 0; begin <= text.size() && line <= last_line; ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t stop = text.find_first_not_of(" \t", begin);
    const size_t tab = text.find('\t', begin);
    if (tab < std::min(stop, end)) {
      return JobYamlProblem{line + 1, static_cast<int>(tab - begin) + 1, "",
                            "a tab in the indentation; YAML allows spaces only"};
    }
    begin = end + 1;
  }
  return std::nullopt;
}

JobYamlProblem of_the_file(const std::string& message) { return {0, 0, "", message}; }

JobYamlProblem too_large(const YamlKind& kind) {
  return of_the_file("larger than 256 KiB; " + std::string(kind.file) + " is a short text");
}

}  // namespace

std::string explain_syntax(const std::string& message) {
  struct Explanation {
    const char* found;
    const char* text;
  };
  static constexpr std::array<Explanation, 6> kExplanations = {{
      {"bad file", "nested too deeply"},
      {"illegal map value",
       "a \": \" where no value can stand; quote the text, or indent by the "
       "same number of spaces as the keys above"},
      {"end of map not found", "wrong indentation: this line matches none of the levels above it"},
      {"end of sequence not found",
       "wrong indentation: this line matches none of the levels above "
       "it"},
      {"end of sequence flow not found", "a list opened with [ is not closed with ]"},
      {"end of map flow not found", "a mapping opened with { is not closed with }"},
  }};
  for (const Explanation& e : kExplanations) {
    if (message == e.found) return std::string("not valid YAML: ") + e.text;
  }
  constexpr size_t kShownBytes = 200;  // the message quotes the file
  return "not valid YAML: " + printable_line(message, kShownBytes);
}

std::optional<JobYamlProblem> read_yaml(std::string_view text, const YamlKind& kind,
                                        const std::function<void(const YAML::Node&)>& read) {
  if (text.size() > kMaxJobYamlBytes) return too_large(kind);
  if (text.find('\0') != std::string_view::npos) {
    return of_the_file("not a text file (it has zero bytes); expected YAML");
  }
  try {
    const YAML::Node document = YAML::Load(std::string(text));
    if (document.IsNull()) {
      return of_the_file("the file is empty; `" + std::string(kind.help) + "` shows an example");
    }
    if (const auto second = second_document(std::string(text))) {
      return JobYamlProblem{
          second->line + 1, second->column + 1, "",
          "a second YAML document; " + std::string(kind.file) + " holds " + kind.holds};
    }
    read(document);
  } catch (const YAML::Exception& e) {
    if (auto tab = tab_in_indentation(text, e.mark.line)) return *tab;
    return JobYamlProblem{e.mark.line + 1, e.mark.column + 1, "", explain_syntax(e.msg)};
  }
  return std::nullopt;
}

YamlFile read_yaml_file(const std::string& path, const YamlKind& kind) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return {"", "", of_the_file("is a directory; expected " + std::string(kind.file))};
  }
  if (std::filesystem::file_size(path, error) > kMaxJobYamlBytes && !error) {
    return {"", "", too_large(kind)};
  }
  auto text = read_file(path, kMaxJobYamlBytes);
  if (!text.ok()) return {"", "", of_the_file(text.error().message)};
  const auto absolute = std::filesystem::absolute(path, error);
  if (error) return {"", "", of_the_file("cannot find its directory: " + error.message())};
  return {std::move(*text), absolute.parent_path().lexically_normal().string(), std::nullopt};
}

}  // namespace hpctl
