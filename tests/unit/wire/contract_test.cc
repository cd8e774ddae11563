// SPDX-License-Identifier: Apache-2.0
// The wire contract of every release stands: what one of them may say is still a field, a call or a
// value of the same number, type and name, so that programs of two releases understand each other.
// tests/golden/wire/VERSION.txt is the contract of a release, a line for each part of it.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

#include "common/base/file.h"
#include "proto/hpctl/v1/cluster.pb.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::ServiceDescriptor;
using Lines = std::set<std::string>;

std::string describe(const FieldDescriptor& field) {
  std::string type = field.type_name();
  if (field.message_type() != nullptr) type = field.message_type()->full_name();
  if (field.enum_type() != nullptr) type = field.enum_type()->full_name();
  std::string line = field.full_name() + " = " + std::to_string(field.number()) + " " + type;
  if (field.is_repeated()) line += " repeated";
  if (field.real_containing_oneof() != nullptr) {
    line += " in " + field.real_containing_oneof()->name();
  } else if (field.has_optional_keyword()) {
    line += " optional";
  }
  return line;
}

void add(const EnumDescriptor& words, Lines& lines) {
  for (int i = 0; i < words.value_count(); ++i) {
    lines.insert(words.full_name() + "." + words.value(i)->name() + " = " +
                 std::to_string(words.value(i)->number()));
  }
}

void add(const Descriptor& message, Lines& lines) {
  for (int i = 0; i < message.field_count(); ++i) lines.insert(describe(*message.field(i)));
  for (int i = 0; i < message.enum_type_count(); ++i) add(*message.enum_type(i), lines);
  for (int i = 0; i < message.nested_type_count(); ++i) add(*message.nested_type(i), lines);
}

void add(const ServiceDescriptor& service, Lines& lines) {
  for (int i = 0; i < service.method_count(); ++i) {
    const auto& call = *service.method(i);
    lines.insert(call.full_name() + "(" + (call.client_streaming() ? "stream " : "") +
                 call.input_type()->full_name() + ") returns (" +
                 (call.server_streaming() ? "stream " : "") + call.output_type()->full_name() +
                 ")");
  }
}

Lines contract_of_this_build() {
  Lines lines;
  for (const FileDescriptor* file :
       {v1::JobStatus::descriptor()->file(), v1::ClusterCall::descriptor()->file()}) {
    for (int i = 0; i < file->message_type_count(); ++i) add(*file->message_type(i), lines);
    for (int i = 0; i < file->enum_type_count(); ++i) add(*file->enum_type(i), lines);
    for (int i = 0; i < file->service_count(); ++i) add(*file->service(i), lines);
  }
  return lines;
}

std::string records() { return std::string(std::getenv("HPCTL_SOURCE")) + "/tests/golden/wire"; }

Lines contract_of(const std::string& record) {
  const auto text = read_file(records() + "/" + record);
  EXPECT_TRUE(text.ok()) << text.error().message;
  std::istringstream in(text.ok() ? *text : "");
  Lines lines;
  for (std::string line; std::getline(in, line);) lines.insert(line);
  return lines;
}

// As text, because it is for a person to read.
std::string missing(const Lines& wanted, const Lines& found) {
  std::string text;
  for (const std::string& line : wanted) {
    if (!found.contains(line)) text += line + "\n";
  }
  return text;
}

TEST(WireContract, EveryReleaseIsUnderstood) {
  const Lines now = contract_of_this_build();
  const auto names = list_directory(records());
  ASSERT_TRUE(names.ok()) << names.error().message;
  ASSERT_FALSE(names->empty());
  for (const std::string& name : *names) {
    const std::string lost = missing(contract_of(name), now);
    EXPECT_TRUE(lost.empty())
        << lost << "proto/hpctl/v1 has lost or changed these parts of the contract of " << name
        << "; programs of that release say or expect them: keep them, and "
           "give what is new a number of its own";
  }
}

TEST(WireContract, ThisReleaseIsRecorded) {
  const std::string record = std::string(HPCTL_VERSION) + ".txt";
  const std::string unrecorded = missing(contract_of_this_build(), contract_of(record));
  EXPECT_TRUE(unrecorded.empty()) << unrecorded << "tests/golden/wire/" << record
                                  << " lacks these lines; append them";
}

}  // namespace
}  // namespace hpctl
