// SPDX-License-Identifier: Apache-2.0
// What a point of the benchmark will need, by the plans behind `hpctl plan`, which is not built on
// a bare machine with a GPU:
//
//   point_plan PRODUCT WORKLOAD.json
//
// PRODUCT: a GPU's name ("NVIDIA H100 80GB HBM3", or "h100"); of another device no time is known.
// Prints a line of JSON: gpu_bytes, host_bytes, flops_per_token and flops_per_token_causal; of a
// known GPU memory_bytes and step_s too, seconds at the usual shares of its peak. Exit codes: 0
// printed, 2 wrong usage, or a workload that cannot be read.
#include <iostream>
#include <string>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/worker/workload.h"
#include "trainer/arch/lora.h"
#include "trainer/plan/gpu_models.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/plan/speed_plan.h"

namespace hpctl {
namespace {

Result<Workload> read_workload(const std::string& file) {
  HP_TRY_ASSIGN(const std::string text, read_file(file));
  return workload_from_json(text);
}

nlohmann::json planned(const Workload& workload, const std::string& product) {
  const GpuModel* named = find_gpu_model(product);
  const GpuModel* const gpu = named != nullptr ? named : gpu_model_of_product(product);
  const TrainSpec& train = workload.train;
  const PlanSetting setting = setting_of(workload, /*gpu=*/true);
  const std::vector<Block> blocks = trained_layout(train);
  const MemoryPlan memory = plan_memory(setting, blocks);
  double host = 0;
  for (const MemoryPart& part : memory.host) host += part.bytes;
  const FlopsPerToken flops = flops_per_token(train.model, blocks, train.data.seq_len, train.lora);
  nlohmann::json plan = {{"gpu_bytes", memory.total()},
                         {"host_bytes", host},
                         {"flops_per_token", flops.whole},
                         {"flops_per_token_causal", flops.causal}};
  if (gpu == nullptr) return plan;
  const SpeedPlan speed = plan_speed(setting, blocks, *gpu);
  plan["memory_bytes"] = gpu->memory_bytes;
  plan["step_s"] = {speed.step_low_s, speed.step_high_s};
  return plan;
}

}  // namespace
}  // namespace hpctl

int main(int count, char** arguments) {
  if (count != 3) {
    std::cerr << "usage: point_plan PRODUCT WORKLOAD.json" << std::endl;
    return 2;
  }
  const auto workload = hpctl::read_workload(arguments[2]);
  if (!workload.ok()) {
    std::cerr << arguments[2] << ": " << workload.error().message << std::endl;
    return 2;
  }
  std::cout << hpctl::planned(*workload, arguments[1]) << std::endl;
  return 0;
}
