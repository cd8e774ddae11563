// SPDX-License-Identifier: Apache-2.0
// A HyperPod node's files, as documented, in older and newer forms, and damaged.
#include "common/slurm/hyperpod.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "common/base/file.h"
#include "common/net/node_address.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

constexpr const char* kOlder = R"({
  "ClusterConfig": {"ClusterName": "ml-cluster", "ClusterArn": "arn:aws:sagemaker:x:1:cluster/a"},
  "InstanceGroups": [
    {"Name": "controller-machine", "InstanceType": "ml.m5.12xlarge", "Instances": [
      {"InstanceName": "controller-machine-1", "AgentIpAddress": "172.16.0.1",
       "CustomerIpAddress": "10.1.0.1", "InstanceId": "i-00000000000000001"}]},
    {"Name": "worker-group-1", "InstanceType": "ml.p5.48xlarge", "Instances": [
      {"InstanceName": "worker-group-1-1", "AgentIpAddress": "172.16.0.2",
       "CustomerIpAddress": "10.1.0.2", "InstanceId": "i-00000000000000002"},
      {"InstanceName": "worker-group-1-2", "AgentIpAddress": "172.16.0.3",
       "CustomerIpAddress": "10.1.0.3", "InstanceId": "i-00000000000000003"}]},
    {"Name": "scaled-away", "InstanceType": "ml.g5.xlarge", "Instances": null}
  ]
})";

constexpr const char* kNewer = R"({
  "ClusterType": "Slurm", "SomethingNew": {"a": [1, 2]},
  "ClusterConfig": {"ClusterName": "ml-cluster"},
  "SlurmConfig": {"PrimaryControllerIp": "10.1.0.1", "SecondaryControllerIps": ["10.1.0.9"]},
  "InstanceGroups": [
    {"Name": "w", "InstanceType": "ml.p5en.48xlarge", "Instances": [
      {"InstanceName": "w-1", "CustomerIpAddress": "10.1.0.2", "InstanceId": "i-2", "Extra": 1,
       "InstanceLabel": {"network-node-layer-1": "nn-1"}},
      {"InstanceName": "w-2", "CustomerIpAddress": null, "InstanceId": "i-3",
       "InstanceLabel": null},
      {"InstanceName": "w-3", "InstanceId": 7}, "no object"]}
  ]
})";

TEST(ResourceConfig, OlderSchema) {
  const auto cluster = parse_resource_config(kOlder, "f");
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ(cluster->name, "ml-cluster");
  EXPECT_TRUE(cluster->controllers.empty());
  ASSERT_EQ(cluster->instances.size(), 3U);
  EXPECT_EQ(cluster->instances[1].type, "p5.48xlarge");
  EXPECT_EQ(cluster->instances[1].group, "worker-group-1");
  const auto* own = find_instance(*cluster, {"192.168.0.1", "10.1.0.3"}, "");
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->instance_id, "i-00000000000000003");
  EXPECT_EQ(find_instance(*cluster, {"172.16.0.3"}, ""), nullptr) << "the service's own address";
  own = find_instance(*cluster, {}, "i-00000000000000002");
  ASSERT_NE(own, nullptr) << "by id where the addresses are not known";
  EXPECT_EQ(own->name, "worker-group-1-1");
}

TEST(ResourceConfig, NewerSchemaAndOddEntries) {
  const auto cluster = parse_resource_config(kNewer, "f");
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ(cluster->controllers, (std::vector<std::string>{"10.1.0.1", "10.1.0.9"}));
  ASSERT_EQ(cluster->instances.size(), 2U) << "those without a usable id are left out";
  EXPECT_EQ(cluster->instances[1].address, "");
  EXPECT_EQ(find_instance(*cluster, {""}, ""), nullptr) << "no address is not an address";
}

TEST(ResourceConfig, DamagedIsSaidSo) {
  const std::string cut(kOlder, 200);
  for (const std::string& text :
       {std::string(), cut, std::string("[]"), std::string("{}"),
        std::string(R"({"InstanceGroups": {"a": 1}})"), std::string("\xff\xfe{}")}) {
    const auto cluster = parse_resource_config(text, "/opt/x.json");
    ASSERT_FALSE(cluster.ok()) << text;
    EXPECT_EQ(cluster.error().code, ErrorCode::kDataLoss);
    EXPECT_NE(cluster.error().message.find("/opt/x.json cannot be used"), std::string::npos);
    EXPECT_EQ(cluster.error().message.find('\n'), std::string::npos);
  }
}

// A machine whose system files are the test's.
class Machine : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("HPCTL_SYSROOT", root_.path().c_str(), 1);
    unsetenv("SAGEMAKER_RESOURCE_CONFIG_PATH");
    unsetenv("HPCTL_INSTANCE_ID");
  }
  void TearDown() override {
    for (const char* name :
         {"HPCTL_SYSROOT", "SAGEMAKER_RESOURCE_CONFIG_PATH", "HPCTL_INSTANCE_ID"}) {
      unsetenv(name);
    }
  }
  void put(const std::string& path, const std::string& text) {
    const std::string full = root_.path() + path;
    ASSERT_TRUE(make_directories(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(write_file_atomic(full, text).ok());
  }
  void put_asset_tag(const std::string& tag) {
    put("/sys/devices/virtual/dmi/id/board_asset_tag", tag + "\n");
  }

  TemporaryDirectory root_;
};

TEST_F(Machine, TheBestSourceOfIdentityWins) {
  EXPECT_EQ(identify_machine().instance_id, "");
  EXPECT_FALSE(is_hyperpod());
  setenv("HPCTL_INSTANCE_ID", "i-given", 1);
  EXPECT_EQ(identify_machine().instance_id, "i-given");
  put_asset_tag("No Asset Tag");
  EXPECT_EQ(identify_machine().instance_id, "i-given") << "not an instance id";
  put_asset_tag("i-00000000000000002");
  put("/sys/devices/virtual/dmi/id/sys_vendor", "Amazon EC2\n");
  put("/sys/devices/virtual/dmi/id/product_name", "p5en.48xlarge\n");
  put("/proc/sys/kernel/random/boot_id", "f00d-1\n");
  MachineIdentity identity = identify_machine();
  EXPECT_EQ(identity.instance_id, "i-00000000000000002");
  EXPECT_EQ(identity.type, "p5en.48xlarge");
  EXPECT_EQ(identity.boot_id, "f00d-1");
  EXPECT_EQ(identity.group, "");
  put("/opt/ml/config/resource_config.json", kOlder);
  put("/opt/sagemaker_cluster", "");
  identity = identify_machine();
  EXPECT_EQ(identity.instance_id, "i-00000000000000002");
  EXPECT_EQ(identity.type, "p5.48xlarge");
  EXPECT_EQ(identity.group, "worker-group-1");
  EXPECT_EQ(identity.trouble, "");
  EXPECT_TRUE(is_hyperpod());
}

TEST_F(Machine, ItsOwnAddressFindsIt) {
  const auto addresses = own_addresses();
  if (addresses.empty()) GTEST_SKIP() << "this machine has no address but the loopback";
  put("/opt/ml/config/resource_config.json",
      R"({"InstanceGroups": [{"Name": "w", "InstanceType": "ml.x", "Instances": [
          {"CustomerIpAddress": ")" +
          addresses[0] + R"(", "InstanceId": "i-me"}]}]})");
  EXPECT_EQ(identify_machine().instance_id, "i-me");
}

TEST_F(Machine, ADamagedFileCostsNothingButAWarning) {
  put("/opt/ml/config/resource_config.json", "{\"InstanceGroups\": [{\"Name\"");
  put_asset_tag("i-5");
  const MachineIdentity identity = identify_machine();
  EXPECT_EQ(identity.instance_id, "i-5");
  EXPECT_NE(identity.trouble.find("resource_config.json cannot be used"), std::string::npos);
}

TEST_F(Machine, AHyperpodNodeWithoutAnIdentityIsWarnedOf) {
  EXPECT_EQ(identify_machine().trouble, "");
  put("/opt/sagemaker_cluster", "");
  EXPECT_NE(identify_machine().trouble.find("instance id of this HyperPod node is unknown"),
            std::string::npos);
  setenv("HPCTL_INSTANCE_ID", "i-given", 1);
  EXPECT_NE(identify_machine().trouble.find("instance type of this HyperPod node is unknown"),
            std::string::npos);
  put("/sys/devices/virtual/dmi/id/sys_vendor", "Amazon EC2\n");
  put("/sys/devices/virtual/dmi/id/product_name", "p5en.48xlarge\n");
  EXPECT_EQ(identify_machine().trouble, "");
}

TEST_F(Machine, AnotherPathMayBeNamed) {
  put("/elsewhere/config.json", kOlder);
  setenv("SAGEMAKER_RESOURCE_CONFIG_PATH", "/elsewhere/config.json", 1);
  const auto cluster = read_resource_config();
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ(cluster->instances.size(), 3U);
  setenv("SAGEMAKER_RESOURCE_CONFIG_PATH", "/nowhere.json", 1);
  const auto missing = read_resource_config();
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace hpctl
