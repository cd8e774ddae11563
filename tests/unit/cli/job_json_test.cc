// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/job_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace hpctl {
namespace {

v1::JobStatus some_status() {
  v1::JobStatus s;
  s.set_job(7);
  s.set_name("quick");
  s.set_state("RUNNING");
  s.set_generation(2);
  s.set_step(34);
  s.set_loss(2.5);
  s.set_restarts(1);
  s.set_controller_pid(100);
  s.set_controller_node("host");
  s.set_total_steps(60);
  auto* node = s.add_nodes();
  node->set_name("n0");
  node->set_role("active");
  node->set_state("up");
  node->set_instance_id("i-0");
  node->set_boot_id("b-0");
  node->set_holder_pid(11);
  node->set_agent_pid(12);
  node->set_job(7);
  auto* worker = s.add_workers();
  worker->set_rank(3);
  worker->set_node("n0");
  worker->set_pid(13);
  worker->set_generation(2);
  worker->set_state("running");
  worker->set_phase("training");
  worker->set_step(34);
  return s;
}

TEST(JobJson, StatusHasTheKeysThatProgramsRelyOn) {
  EXPECT_EQ(to_json_text(some_status()),
            R"({"job":7,"name":"quick","state":"RUNNING","generation":2,"step":34,"loss":2.5,)"
            R"("restarts":1,"controller":{"pid":100,"node":"host"},)"
            R"("nodes":[{"name":"n0","role":"active","state":"up","instance_id":"i-0",)"
            R"("boot_id":"b-0","holder_pid":11,"agent_pid":12}],)"
            R"("workers":[{"rank":3,"node":"n0","pid":13,"generation":2,"state":"running",)"
            R"("phase":"training","step":34}],)"
            R"("reason":"","total_steps":60,"tokens_per_second":0.0,"checkpoint_step":0,)"
            R"("checkpoint_dir":"","submitted_wall_ms":0,"ended_wall_ms":0,"lost_ms":0,)"
            R"("faults":0,"owner":""})");
}

TEST(JobJson, StatusRoundTrips) {
  const v1::JobStatus status = some_status();
  const auto back = job_status_from_json(to_json_text(status));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->SerializeAsString(), status.SerializeAsString());
}

TEST(JobJson, LossIsNullBeforeTheFirstStep) {
  v1::JobStatus status = some_status();
  status.set_loss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_NE(to_json_text(status).find("\"loss\":null"), std::string::npos);
  EXPECT_TRUE(std::isnan(job_status_from_json(to_json_text(status))->loss()));
}

TEST(JobJson, EventsRoundTrip) {
  v1::Event event;
  event.set_seq(9);
  event.set_wall_ms(1'763'700'000'123);
  event.set_type("WorkerExited");
  event.set_job(7);
  event.set_generation(1);
  event.set_node("n1");
  event.set_rank(2);
  event.set_cause("killed by SIGKILL");
  event.set_because_seq(8);
  EXPECT_EQ(to_json_text(event),
            R"({"seq":9,"time":"2025-11-21T04:40:00.123Z","type":"WorkerExited","job":7,)"
            R"("generation":1,"node":"n1","rank":2,"cause":"killed by SIGKILL","because":8,)"
            R"("wall_ms":1763700000123})");
  EXPECT_EQ(event_from_json(to_json_text(event))->SerializeAsString(), event.SerializeAsString());
  event.clear_node();
  event.set_rank(-1);
  EXPECT_NE(to_json_text(event).find("\"node\":null,\"rank\":null"), std::string::npos);
  EXPECT_EQ(event_from_json(to_json_text(event))->rank(), -1);
}

TEST(JobJson, DamagedTextIsAnError) {
  for (const char* text : {"", "{", "[]", "7", "{}", R"({"job":"x","seq":"y"})", "\xff"}) {
    EXPECT_FALSE(job_status_from_json(text).ok()) << text;
    EXPECT_FALSE(event_from_json(text).ok()) << text;
  }
  EXPECT_TRUE(job_status_from_json(R"({"job":1,"nodes":[5],"workers":{},"loss":"x"})").ok());
}

TEST(JobJson, TextThatIsNotUtf8IsReplaced) {
  v1::JobSummary job;
  job.set_job(1);
  job.set_name("a\xff");
  job.set_state("RUNNING");
  EXPECT_EQ(to_json_text(std::vector<v1::JobSummary>{job}),
            "{\"jobs\":[{\"job\":1,\"name\":\"a\xEF\xBF\xBD\",\"state\":\"RUNNING\"}]}");
}

}  // namespace
}  // namespace hpctl
