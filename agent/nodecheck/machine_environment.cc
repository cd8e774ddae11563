// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/machine_environment.h"

#include <cctype>
#include <initializer_list>
#include <string_view>

#include "agent/nodecheck/probes/own_name.h"
#include "common/base/file.h"
#include "common/base/host.h"
#include "common/slurm/hyperpod.h"

namespace hpctl::agent {
namespace {

constexpr size_t kMaxBytes = 1U << 20;

// The version in "NAME_1.2.3-1_amd64" or "NAME-1.2.3-1.amzn2.x86_64", whatever suffix NAME has.
std::optional<Version> version_of(std::string_view packages,
                                  std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    for (size_t at = packages.find(name); at != std::string_view::npos;
         at = packages.find(name, at + 1)) {
      const size_t end = std::min(packages.find_first_of(" \n\t", at), packages.size());
      for (size_t i = at + name.size(); i + 1 < end; ++i) {
        const bool is_start = (packages[i] == '_' || packages[i] == '-') &&
                              std::isdigit(static_cast<unsigned char>(packages[i + 1])) != 0;
        if (is_start) return parse_version(packages.substr(i + 1, end - i - 1));
      }
    }
  }
  return std::nullopt;
}

std::string text_of(const std::optional<Version>& version) {
  if (!version) return "of unknown version";
  std::string text;
  for (const int part : *version) text += (text.empty() ? "" : ".") + std::to_string(part);
  return text;
}

}  // namespace

InstalledStack stack_of(const std::string& installed_packages) {
  return {version_of(installed_packages, {"libfabric-aws", "libfabric"}),
          version_of(installed_packages, {"libnccl-ofi", "aws-ofi-nccl"})};
}

Result<std::string> find_data_file(const std::string& program_directory, const std::string& name) {
  const std::string beside = program_directory + "/" + name;
  const std::string shared = program_directory + "/../share/hpctl/" + name;
  if (is_accessible(beside)) return beside;
  if (is_accessible(shared)) return shared;
  return Error{ErrorCode::kNotFound, "neither " + beside + " nor " + shared + " is there"};
}

MachineEnvironment machine_environment(const std::string& program_directory) {
  MachineEnvironment result;
  const std::string type = identify_machine().type;
  if (type.empty()) return result;
  const auto path = find_data_file(program_directory, "environment.json");
  const auto text = path.ok() ? read_file(*path, kMaxBytes) : path;
  const auto rules = text.ok() ? parse_environment_rules(*text, *path)
                               : Result<std::vector<EnvironmentRule>>(text.error());
  if (!rules.ok()) {
    result.story = rules.error().message + "; workers get no variables for " + type;
    return result;
  }
  const auto packages = read_file(system_path("/opt/amazon/efa_installed_packages"), kMaxBytes);
  const InstalledStack stack = packages.ok() ? stack_of(*packages) : InstalledStack();
  result.variables = environment_for(*rules, type, stack);
  result.story = type + " with libfabric " + text_of(stack.libfabric) + " and aws-ofi-nccl " +
                 text_of(stack.ofi_nccl);
  return result;
}

}  // namespace hpctl::agent
