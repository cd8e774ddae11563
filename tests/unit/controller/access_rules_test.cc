// SPDX-License-Identifier: Apache-2.0
// The table of who may call what, against the wire contract and against a second writing of it.
// tcp_access_test calls every method as every role.
#include "controller/access/rules.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "proto/hpctl/v1/cluster.pb.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl {
namespace {

std::set<std::string> methods_of_the_contract() {
  std::set<std::string> methods;
  for (const auto* file :
       {v1::JobStatus::descriptor()->file(), v1::ClusterCall::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        methods.insert(file->service(s)->method(m)->full_name().substr(sizeof "hpctl.v1"));
      }
    }
  }
  return methods;
}

TEST(AccessRules, EveryCallOfTheContractHasItsRow) {
  std::set<std::string> rows;
  for (size_t i = 0; i < kRpcs; ++i) rows.insert(rule_of(static_cast<Rpc>(i)).method);
  EXPECT_EQ(rows, methods_of_the_contract())
      << "a new call needs an Rpc and a row in controller/access/rules.cc, its line here and in "
         "docs/security.md, and gate.enter() in its handler";
}

// a agent, r reader, o operator, O owner, l local; u, R, P and A at the cluster controller.
TEST(AccessRules, AreTheseAndNoOthers) {
  const std::map<std::string, std::string> expected = {
      {"Controller.Submit", "Ol"},          {"Controller.GetJob", "roOl"},
      {"Controller.ListJobs", "roOl"},      {"Controller.Cancel", "Ol"},
      {"Controller.WatchEvents", "roOl"},   {"Controller.Why", "roOl"},
      {"Controller.ListNodes", "roOl"},     {"Controller.GetVersion", "roOl"},
      {"Controller.QuarantineNode", "oOl"}, {"Controller.ReleaseNode", "oOl"},
      {"Controller.RecoverNode", "oOl"},    {"Controller.Inject", "Ol"},
      {"Controller.OpenPage", "Ol"},        {"Controller.RemoveJob", "Ol"},
      {"AgentLink.Connect", "al"},          {"Cluster.Admit", "uRPA"},
      {"Cluster.ListJobs", "uRPA"},         {"Cluster.OpenJob", "RPA"},
      {"Cluster.JudgeNode", "PA"},          {"Cluster.OpenPage", "uRPA"},
  };
  const std::string roles = "aroOluRPA";
  std::map<std::string, std::string> found;
  for (size_t i = 0; i < kRpcs; ++i) {
    const auto rpc = static_cast<Rpc>(i);
    std::string& who = found[rule_of(rpc).method];
    for (size_t role = 0; role < roles.size(); ++role) {
      if (may_call(static_cast<Role>(role), rpc, false)) who += roles[role];
    }
  }
  EXPECT_EQ(found, expected);
}

TEST(AccessRules, OlderAgentsComeWithTheOwnersTokenAndNothingElseChanges) {
  for (size_t i = 0; i < kRpcs; ++i) {
    for (size_t r = 0; r < words_of(Role{}).size(); ++r) {
      const auto rpc = static_cast<Rpc>(i);
      const auto role = static_cast<Role>(r);
      const bool is_theirs = rpc == Rpc::kConnect && role == Role::kOwner;
      EXPECT_EQ(may_call(role, rpc, true), may_call(role, rpc, false) || is_theirs)
          << rule_of(rpc).method << " " << to_word(role);
    }
  }
}

TEST(AccessRules, WhatChangesSomethingIsWrittenDown) {
  std::set<std::string> looks;
  for (size_t i = 0; i < kRpcs; ++i) {
    const AccessRule& rule = rule_of(static_cast<Rpc>(i));
    if (!rule.is_audited) looks.insert(rule.method);
  }
  // Of agents' streams the history tells.
  EXPECT_EQ(looks, (std::set<std::string>{"AgentLink.Connect", "Cluster.ListJobs",
                                          "Controller.GetJob", "Controller.GetVersion",
                                          "Controller.ListJobs", "Controller.ListNodes",
                                          "Controller.WatchEvents", "Controller.Why"}));
}

}  // namespace
}  // namespace hpctl
