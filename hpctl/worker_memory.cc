// SPDX-License-Identifier: Apache-2.0
#include "hpctl/worker_memory.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <vector>

#include "common/base/file.h"
#include "common/base/printable.h"
#include "common/process/memory_cgroup.h"
#include "trainer/arch/lora.h"
#include "trainer/plan/fit.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/plan/plan_text.h"

namespace hpctl {
namespace {

namespace fs = std::filesystem;

// What a worker has besides its plan: the program, its libraries and OpenBLAS' work space
// (docs/decisions/1301-plan.md).
constexpr double kProgramBytes = 200.0 * (1 << 20);

// Of a share of a host's memory that `workers` get, with the standbys that wait beside them. Never
// 0, which would mean that it is not known.
double part_of_host(double bytes, int64_t standbys, int64_t workers) {
  const double left = bytes - static_cast<double>(standbys) * kStandbyBytes;
  return std::max(1.0, left / static_cast<double>(workers) - kProgramBytes);
}

WorkerMemory of_this_host(const JobSpec& spec, const std::string& root) {
  double bytes = machine_memory_bytes();
  const auto limit = static_cast<double>(memory_limit_bytes(root));
  const bool is_limited = limit > 0 && limit < bytes;
  if (is_limited) bytes = limit;
  const int64_t spares =
      spec.recovery.standbys > 0 ? int64_t{spec.spares} * spec.workers_per_node : 0;
  return {
      .bytes = part_of_host(bytes, spec.recovery.standbys * spec.nodes + spares, spec.world_size()),
      .source = plan_text("its part of %.1f GiB of ", gibibytes(bytes)) +
                (is_limited ? "this cgroup" : "this machine")};
}

WorkerMemory of_slurm_host(const JobSpec& spec) {
  if (spec.slurm.mem_mb <= 0) return {.source = "slurm.mem does not tell what a node has"};
  const double bytes = static_cast<double>(spec.slurm.mem_mb) * (1 << 20);
  return {.bytes = part_of_host(bytes, spec.recovery.standbys, spec.workers_per_node),
          .source = plan_text("its part of %.1f GiB by slurm.mem", gibibytes(bytes))};
}

// On this machine nodes share its GPUs.
WorkerMemory of_gpu(const GpuModel& gpu, const std::string& told_by, int32_t sharing) {
  const std::string share =
      sharing > 1 ? ", shared by " + std::to_string(sharing) + " nodes" : std::string();
  return {&gpu, gpu.memory_bytes / sharing, std::string(gpu.name) + " " + told_by + share};
}

// "Model: \t\t NVIDIA H100 80GB HBM3" of each GPU, as the driver tells.
std::vector<std::string> gpu_products(const std::string& root) {
  std::vector<std::string> products;
  std::error_code error;
  for (fs::directory_iterator at(root + "/proc/driver/nvidia/gpus", error), end;
       !error && at != end; at.increment(error)) {
    const auto text = read_file(at->path().string() + "/information");
    std::istringstream lines(text.ok() ? *text : "");
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("Model:")) continue;
      const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
      if (begin != std::string::npos) products.push_back(line.substr(begin));
    }
  }
  std::sort(products.begin(), products.end());
  return products;
}

// CUDA_VISIBLE_DEVICES= trains on the CPU (trainer/device).
bool hides_gpus(const JobSpec& spec) {
  const auto set = spec.env.find("CUDA_VISIBLE_DEVICES");
  if (set != spec.env.end()) return set->second.empty();
  const char* const inherited = std::getenv("CUDA_VISIBLE_DEVICES");
  return inherited != nullptr && *inherited == '\0';
}

WorkerMemory of_this_machine(const JobSpec& spec, const std::string& root) {
  if (!is_accessible(root + "/dev/nvidiactl") || hides_gpus(spec)) return of_this_host(spec, root);
  const GpuModel* least = nullptr;
  for (const std::string& product : gpu_products(root)) {
    const GpuModel* gpu = gpu_model_of_product(product);
    if (gpu == nullptr) {
      return {.source = "no plan knows this machine's " + printable_line(product, 80) +
                        "; --gpu names one like it"};
    }
    if (least == nullptr || gpu->memory_bytes < least->memory_bytes) least = gpu;
  }
  if (least == nullptr) {
    return {.source = "the driver does not tell which GPUs this machine has; --gpu does"};
  }
  return of_gpu(*least, "of this machine", spec.nodes);
}

// The generic resources of a node: "gpu:h100:8(S:0-1),shard:4" -> "gpu:h100:8", "shard:4".
std::vector<std::string> parts_of_gres(const std::string& gres) {
  std::vector<std::string> parts;
  std::istringstream all(gres);
  for (std::string one; std::getline(all, one, ',');) {
    if (one.starts_with("gres:")) one.erase(0, 5);
    parts.push_back(one.substr(0, one.find('(')));
  }
  return parts;
}

// "gpu", "gpu:8", "gpu:h100" and "gpu:h100:8" are 1, 8, 1 and 8.
int32_t gpus_of_gres(const std::string& gres) {
  int32_t gpus = 0;
  for (const std::string& part : parts_of_gres(gres)) {
    if (part != "gpu" && !part.starts_with("gpu:")) continue;
    const size_t behind = part.rfind(':') + 1;  // 0 where there is none
    int32_t count = 0;
    const char* const end = part.data() + part.size();
    const auto [read, error] = std::from_chars(part.data() + behind, end, count);
    gpus += error == std::errc() && read == end ? std::clamp(count, 0, 1024) : 1;
  }
  return gpus;
}

bool is_told_cpu(const JobPlace& place) { return place.device && *place.device == nullptr; }

int32_t count_gpus(const JobSpec& spec, const JobPlace& place) {
  if (is_told_cpu(place)) return 0;
  if (!place.local) return gpus_of_gres(spec.slurm.gres);
  if (!is_accessible(place.root + "/dev/nvidiactl") || hides_gpus(spec)) return 0;
  return static_cast<int32_t>(gpu_products(place.root).size());
}

}  // namespace

std::string choose_workers(JobSpec& spec, const JobPlace& place) {
  if (!spec.auto_workers) return "";
  spec.auto_workers = false;
  const int32_t gpus = count_gpus(spec, place);
  const int32_t sharing = place.local ? spec.nodes : 1;
  spec.workers_per_node = std::max(1, gpus / sharing);
  std::string reason = place.local ? "this machine has " + std::to_string(gpus) + " GPUs"
                                   : "slurm.gres asks for " + std::to_string(gpus) + " GPUs";
  if (is_told_cpu(place)) {
    reason = "--gpu is cpu";
  } else if (gpus == 0) {
    reason = place.local ? "this machine has no GPU" : "slurm.gres asks for no GPU";
  }
  if (sharing > 1 && gpus > 0) reason += ", for " + std::to_string(sharing) + " nodes";
  return "workers_per_node: auto is " + std::to_string(spec.workers_per_node) + ": " + reason;
}

Result<std::optional<const GpuModel*>> gpu_option(const Invocation& invocation) {
  const auto option = invocation.options.find("--gpu");
  if (option == invocation.options.end()) return std::optional<const GpuModel*>();
  if (option->second == "cpu") return std::optional<const GpuModel*>(nullptr);
  if (const GpuModel* device = find_gpu_model(option->second)) return std::optional(device);
  std::string names = "cpu";
  for (const GpuModel& device : gpu_models()) names += ", " + std::string(device.name);
  return Error{ErrorCode::kInvalidArgument,
               "--gpu: expected one of " + names + "; found \"" + option->second + "\""};
}

const GpuModel* gpu_of_gres(const std::string& gres) {
  for (const std::string& part : parts_of_gres(gres)) {
    if (!part.starts_with("gpu:")) continue;
    const std::string type = part.substr(4, part.find(':', 4) - 4);
    if (const GpuModel* gpu = gpu_model_of_gres(type)) return gpu;
  }
  return nullptr;
}

WorkerMemory find_worker_memory(const JobSpec& spec, const JobPlace& place) {
  if (place.device) {
    const int32_t sharing = place.local ? spec.nodes : 1;
    if (*place.device != nullptr) return of_gpu(**place.device, "by --gpu", sharing);
    return place.local ? of_this_host(spec, place.root) : of_slurm_host(spec);
  }
  if (place.local) return of_this_machine(spec, place.root);
  if (const GpuModel* gpu = gpu_of_gres(spec.slurm.gres)) return of_gpu(*gpu, "of slurm.gres", 1);
  return {.source = "neither --gpu nor a type in slurm.gres names a GPU"};
}

std::string choose_values(JobSpec& spec, const WorkerMemory& memory) {
  Automatic automatic = choose_automatic(spec, trained_layout(*spec.train), memory);
  spec.train = std::move(automatic.train);
  spec.chosen = std::move(automatic.chosen);
  return automatic.misfit;
}

std::string describe_chosen(const ChosenValues& chosen, const std::string& prefix) {
  if (chosen.values.empty()) return "";
  std::string text = prefix + "auto, for " + chosen.basis + ":\n";
  for (const ChosenValue& value : chosen.values) {
    text += prefix + "  " + value.key + ": " + value.value + "  (" + value.reason + ")\n";
  }
  return text;
}

}  // namespace hpctl
