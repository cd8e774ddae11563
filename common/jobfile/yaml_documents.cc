// SPDX-License-Identifier: Apache-2.0
#include "common/jobfile/yaml_documents.h"

#include <yaml-cpp/eventhandler.h>

#include <sstream>

namespace hpctl {
namespace {

using YAML::Mark;

// Remembers where the present document's content begins.
class FirstContent final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const Mark&) override { mark.reset(); }
  void OnDocumentEnd() override {}
  void OnNull(const Mark& at, YAML::anchor_t) override { see(at); }
  void OnAlias(const Mark& at, YAML::anchor_t) override { see(at); }
  void OnScalar(const Mark& at, const std::string&, YAML::anchor_t, const std::string&) override {
    see(at);
  }
  void OnSequenceStart(const Mark& at, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    see(at);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const Mark& at, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    see(at);
  }
  void OnMapEnd() override {}

  std::optional<Mark> mark;

 private:
  void see(const Mark& at) {
    if (!mark) mark = at;
  }
};

}  // namespace

std::optional<YAML::Mark> second_document(const std::string& text) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  FirstContent content;
  if (!parser.HandleNextDocument(content) || !parser.HandleNextDocument(content)) {
    return std::nullopt;
  }
  return content.mark;
}

}  // namespace hpctl
