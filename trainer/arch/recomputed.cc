// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/recomputed.h"

#include <utility>

#include "common/base/check.h"

namespace hpctl {

at::Tensor Recomputed::run(Function function) {
  std::vector<at::Tensor> results = function();
  at::Tensor value = results.back();
  regions_.push_back({std::move(function), std::move(results)});
  return value;
}

void Recomputed::add(const at::Tensor& value, Function function) {
  regions_.push_back({std::move(function), {value}});
}

void Recomputed::give_up() {
  for (Region& region : regions_) {
    for (const at::Tensor& result : region.results) compat::set_storage_memory(result, nullptr, 0);
  }
}

void Recomputed::restore() {
  const c10::NoGradGuard no_grad;
  for (Region& region : regions_) {
    const std::vector<at::Tensor> again = region.function();
    HP_CHECK(again.size() == region.results.size());
    for (size_t i = 0; i < again.size(); ++i) {
      // Two names of one storage: the first has moved it.
      if (again[i].storage().nbytes() > 0) {
        compat::move_storage_memory(again[i], region.results[i]);
      }
    }
  }
  regions_.clear();
}

}  // namespace hpctl
