// SPDX-License-Identifier: Apache-2.0
// The peak performance of a GPU, for MFU and for plans. Peaks are dense bf16 without sparsity, with
// TorchTitan's values (`tools/utils.py:get_peak_flops`), so ratios compare. Memory, the peak in
// fp32 (products of fp32 stay fp32, compat/torch_compat.h: no TF32) and bandwidths are the maker's
// figures; only plans use the latter two.
#pragma once

#include <span>
#include <string_view>

namespace hpctl {

struct GpuModel {
  std::string_view name;        // as `hpctl plan --gpu` takes it
  std::string_view match;       // in the product name that the driver reports
  double peak_flops = 0;        // per second, dense bf16
  double fp32_flops = 0;        // per second, outside the matrix units
  double memory_bytes = 0;      // 0 = the machine's
  double link_bytes_per_s = 0;  // to the GPUs of the node, one direction
  double net_bytes_per_s = 0;   // to other nodes, per GPU, in instances that AWS offers
  double host_bytes_per_s = 0;  // to the host's memory, one direction: PCIe 4, 5 or NVLink-C2C
};

std::span<const GpuModel> gpu_models();
// By the name of a plan; null when unknown.
const GpuModel* find_gpu_model(std::string_view name);
// By product name, e.g. "NVIDIA H100 80GB HBM3"; null when unknown.
const GpuModel* gpu_model_of_product(std::string_view product);
// By the type of a Slurm gres: a plan's name, or the product's in lower case with underscores, as
// Slurm finds out by itself ("nvidia_h100_80gb_hbm3"); null when unknown.
const GpuModel* gpu_model_of_gres(std::string_view type);

}  // namespace hpctl
