// SPDX-License-Identifier: Apache-2.0
#include "common/base/bounded_json.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/printable.h"

using nlohmann::json;

namespace hpctl {
namespace {

constexpr size_t kShownBytes = 300;  // of what is wrong, which quotes the document

// Builds the document from the parser's calls, and ends them at a limit.
class Builder final : public json::json_sax_t {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(value) != nullptr; }
  // Including integers beyond 64 bits, which are never returned as integers (common/base/json.h).
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return add(value) != nullptr;
  }
  bool string(string_t& value) override { return add(std::move(value)) != nullptr; }
  bool binary(binary_t& value) override { return add(std::move(value)) != nullptr; }
  bool start_object(size_t /*elements*/) override { return open(json::object()); }
  bool start_array(size_t /*elements*/) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    auto [member, is_new] = open_.back()->get_ref<json::object_t&>().emplace(name, nullptr);
    if (!is_new && limits_.distinct_names) {
      problem_ = "the name \"" + printable_line(name, kShownBytes) + "\" is there twice";
      return false;
    }
    member_ = &member->second;
    return true;
  }

  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const json::exception& e) override {
    problem_ = printable_line(e.what(), kShownBytes);
    return false;
  }

  const std::string& problem() const { return problem_; }
  json take() { return std::move(root_); }

 private:
  json* add(json value) {
    if (++values_ > limits_.values) {
      problem_ = "more than " + std::to_string(limits_.values) + " values";
      return nullptr;
    }
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_object()) return &(*member_ = std::move(value));
    auto& elements = open_.back()->get_ref<json::array_t&>();
    return &elements.emplace_back(std::move(value));
  }
  bool open(json value) {
    if (open_.size() == limits_.depth) {
      problem_ = "nested deeper than " + std::to_string(limits_.depth) + " levels";
      return false;
    }
    json* const added = add(std::move(value));
    if (added != nullptr) open_.push_back(added);
    return added != nullptr;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  json root_;
  std::vector<json*> open_;  // arrays and objects that have not ended, outermost first
  json* member_ = nullptr;   // of the innermost object: its value follows
  size_t values_ = 0;
  std::string problem_;
};

// The document, or why there is none.
std::pair<json, std::string> build(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return {json(json::value_t::discarded),
            "larger than " + std::to_string(limits.bytes) + " bytes"};
  }
  Builder builder(limits);
  if (json::sax_parse(text.begin(), text.end(), &builder)) return {builder.take(), ""};
  return {json(json::value_t::discarded), builder.problem()};
}

// The way from `document` to the value at that address, as in "/nodes/0/pid"; no more than its
// limits are deep.
std::optional<std::string> path_to(const void* value, const json& document) {
  if (&document == value) return "";
  if (!document.is_structured()) return std::nullopt;
  for (const auto& member : document.items()) {
    if (const auto rest = path_to(value, member.value())) return "/" + member.key() + *rest;
  }
  return std::nullopt;
}

// Of "[json.exception.type_error.302] type must be string, but is number" what says something.
std::string without_class(std::string words) {
  while (words.starts_with("[json.exception.") && words.find("] ") != std::string::npos) {
    words.erase(0, words.find("] ") + 2);
  }
  return words;
}

}  // namespace

json parse_json(std::string_view text, const JsonLimits& limits) {
  auto [document, problem] = build(text, limits);
  if (!problem.empty()) throw json::other_error::create(501, problem, nullptr);
  return std::move(document);
}

json parse_json_or_discard(std::string_view text, const JsonLimits& limits) {
  return build(text, limits).first;
}

std::string problem_in(const json& document, const json::exception& e) {
  const auto* not_whole = dynamic_cast<const NotWhole*>(&e);
  if (not_whole == nullptr) return without_class(e.what());
  const auto path = path_to(not_whole->value(), document);
  return path.value_or("").empty() ? e.what()
                                   : printable_line(*path, kShownBytes) + ": " + e.what();
}

}  // namespace hpctl
