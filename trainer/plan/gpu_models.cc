// SPDX-License-Identifier: Apache-2.0
#include "trainer/plan/gpu_models.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace hpctl {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// A more special match comes first. p4d, p5, p5en and p6 instances: 400, 3200, 3200 and 3200 Gb/s
// per 8 GPUs (p6-b200: 8 x 400).
constexpr std::array<GpuModel, 12> kGpuModels = {{
    {"h100-nvl", "H100 NVL", 835e12, 60e12, 94 * kGiB, 300e9, 50e9, 64e9},
    {"h100-pcie", "H100 PCIe", 756e12, 51e12, 80 * kGiB, 64e9, 50e9, 64e9},
    {"h100", "H100", 989e12, 67e12, 80 * kGiB, 450e9, 50e9, 64e9},
    {"h200", "H200", 989e12, 67e12, 141 * kGiB, 450e9, 50e9, 64e9},
    {"h20", "H20", 148e12, 44e12, 96 * kGiB, 450e9, 50e9, 64e9},
    {"a100-40g", "A100-SXM4-40GB", 312e12, 19.5e12, 40 * kGiB, 300e9, 6.25e9, 32e9},
    {"a100", "A100", 312e12, 19.5e12, 80 * kGiB, 300e9, 6.25e9, 32e9},
    {"gb200", "GB200", 2.5e15, 80e12, 186 * kGiB, 900e9, 50e9, 450e9},
    {"b200", "B200", 2.25e15, 75e12, 180 * kGiB, 900e9, 50e9, 64e9},
    {"mi300x", "MI300X", 1300e12, 163.4e12, 192 * kGiB, 448e9, 50e9, 64e9},
    {"l40s", "L40S", 362e12, 91.6e12, 48 * kGiB, 32e9, 12.5e9, 32e9},
    {"a10g", "A10G", 70e12, 35e12, 24 * kGiB, 32e9, 1.5e9, 32e9},
}};

// As the type of a gres is written.
std::string gres_form(std::string_view product) {
  std::string form(product);
  std::transform(form.begin(), form.end(), form.begin(), [](unsigned char c) {
    return c == ' ' ? '_' : static_cast<char>(std::tolower(c));
  });
  return form;
}

}  // namespace

std::span<const GpuModel> gpu_models() { return kGpuModels; }

const GpuModel* find_gpu_model(std::string_view name) {
  for (const GpuModel& device : kGpuModels) {
    if (device.name == name) return &device;
  }
  return nullptr;
}

const GpuModel* gpu_model_of_product(std::string_view product) {
  for (const GpuModel& device : kGpuModels) {
    if (product.find(device.match) != std::string_view::npos) return &device;
  }
  return nullptr;
}

const GpuModel* gpu_model_of_gres(std::string_view type) {
  const std::string form = gres_form(type);
  if (const GpuModel* device = find_gpu_model(form)) return device;
  for (const GpuModel& device : kGpuModels) {
    if (form.find(gres_form(device.match)) != std::string::npos) return &device;
  }
  return nullptr;
}

}  // namespace hpctl
