// SPDX-License-Identifier: Apache-2.0
// Links of the pages: README.md, and every .md below docs/. Finds the links that a reader on GitHub
// or in an editor would find broken.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

struct BrokenLink {
  std::string page;  // relative to the root
  size_t line = 0;   // from 1
  std::string message;
};

// Relative links whose file is not there or has no such heading, and pages of docs/ that
// docs/README.md does not lead to. Links to other sites are not looked at.
std::vector<BrokenLink> find_broken_links(const std::filesystem::path& root);
