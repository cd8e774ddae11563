// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/gradient_memory.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace hpctl {

namespace {

using Parts = std::vector<UnwrittenPart>;

void forget(void* parts) { std::unique_ptr<Parts>(static_cast<Parts*>(parts)).reset(); }

// Null where the memory is not of gradient_over().
Parts* parts_under(const at::Tensor& gradient) {
  return gradient.storage().data_ptr().cast_context<Parts>(&forget);
}

}  // namespace

at::Tensor gradient_over(float* memory, int64_t count, const std::string& device,
                         std::vector<UnwrittenPart> unwritten) {
  at::Tensor flat = compat::tensor_over(memory, count, at::kFloat, device);
  auto parts = std::make_unique<Parts>(std::move(unwritten));
  flat.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      at::DataPtr(memory, parts.release(), &forget, flat.device()));
  return flat;
}

std::vector<UnwrittenPart> unwritten_parts(const at::Tensor& gradient) {
  const Parts* const parts = parts_under(gradient);
  return parts == nullptr ? Parts() : *parts;
}

bool take_unwritten(const at::Tensor& gradient) {
  Parts* const parts = parts_under(gradient);
  if (parts == nullptr) return false;
  const int64_t begin = gradient.storage_offset();
  const int64_t end = begin + gradient.numel();
  const auto after = std::stable_partition(parts->begin(), parts->end(), [&](const auto& part) {
    return part.first < begin || part.first + part.count > end;
  });
  const Parts taken(after, parts->end());
  parts->erase(after, parts->end());
  int64_t elements = 0;
  for (const UnwrittenPart& part : taken) elements += part.count;
  if (elements == gradient.numel()) return true;
  for (const UnwrittenPart& part : taken) {
    gradient.view({-1}).narrow(0, part.first - begin, part.count).zero_();
  }
  return false;
}

}  // namespace hpctl
