// SPDX-License-Identifier: Apache-2.0
// A page is read twice: once for its headings, of which each has an anchor, and once for its links.
// What stands between fences or backticks is an example, not a link.
#include "tools/doc_links.h"

#include <fstream>
#include <map>
#include <regex>
#include <set>

namespace {

namespace fs = std::filesystem;

struct Line {
  size_t number = 0;
  std::string text;
};

// Lines outside of ``` fences.
std::vector<Line> prose_of(const fs::path& page) {
  std::ifstream in(page);
  std::vector<Line> lines;
  bool fenced = false;
  size_t number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    if (text.find_first_not_of(' ') != std::string::npos &&
        text.compare(text.find_first_not_of(' '), 3, "```") == 0) {
      fenced = !fenced;
    } else if (!fenced) {
      lines.push_back({number, text});
    }
  }
  return lines;
}

// As GitHub makes it of a heading: small letters, blanks become hyphens, other marks vanish.
std::string anchor_of(const std::string& heading) {
  static const std::regex link(R"(\[([^\]]*)\]\([^)]*\))");
  std::string anchor;
  for (const char c : std::regex_replace(heading, link, "$1")) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ') {
      anchor += '-';
    } else if (c >= 'A' && c <= 'Z') {
      anchor += static_cast<char>(c - 'A' + 'a');
    } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
               byte >= 0x80) {
      anchor += c;
    }
  }
  return anchor;
}

std::set<std::string> anchors_of(const fs::path& page) {
  static const std::regex heading(R"(^#{1,6}\s+(.*?)\s*$)");
  std::map<std::string, int> seen;
  std::set<std::string> anchors;
  for (const Line& line : prose_of(page)) {
    std::smatch m;
    if (!std::regex_match(line.text, m, heading)) continue;
    const std::string anchor = anchor_of(m[1]);
    const int before = seen[anchor]++;
    anchors.insert(before == 0 ? anchor : anchor + "-" + std::to_string(before));
  }
  return anchors;
}

// What is wrong with a link from a page in `directory`; "" = nothing, or it leads to another site.
std::string problem_of(const std::string& target, const fs::path& page) {
  static const std::regex other_site(R"(^[a-z]+:.*)");
  if (std::regex_match(target, other_site)) return "";
  const size_t hash = target.find('#');
  const std::string path = target.substr(0, hash);
  const fs::path file = path.empty() ? page : page.parent_path() / path;
  if (!fs::exists(file)) return "there is no " + path;
  if (hash == std::string::npos) return "";
  const std::string anchor = target.substr(hash + 1);
  if (file.extension() != ".md") return "only a page has headings: " + target;
  if (anchors_of(file).contains(anchor)) return "";
  return "no heading makes #" + anchor + " of " + file.filename().string();
}

}  // namespace

std::vector<BrokenLink> find_broken_links(const fs::path& root) {
  static const std::regex code("`[^`]*`");
  static const std::regex link(R"(\]\(([^)\s]+)\))");
  std::vector<fs::path> pages = {root / "README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  std::vector<BrokenLink> broken;
  std::set<fs::path> in_index;
  const fs::path index = root / "docs/README.md";
  for (const fs::path& page : pages) {
    const std::string name = page.lexically_relative(root).generic_string();
    for (const Line& line : prose_of(page)) {
      const std::string text = std::regex_replace(line.text, code, "");
      for (std::sregex_iterator l(text.begin(), text.end(), link), end; l != end; ++l) {
        const std::string target = (*l)[1];
        if (page == index) in_index.insert(root / "docs" / target.substr(0, target.find('#')));
        const std::string problem = problem_of(target, page);
        if (!problem.empty()) broken.push_back({name, line.number, "a broken link: " + problem});
      }
    }
  }
  for (const fs::path& page : pages) {
    if (page.parent_path() != root / "docs" || page == index || in_index.contains(page)) continue;
    broken.push_back({page.lexically_relative(root).generic_string(), 1,
                      "docs/README.md does not lead to this page"});
  }
  return broken;
}
