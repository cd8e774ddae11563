// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/documents.h"

#include <algorithm>

namespace hpctl {

Documents documents_at(const at::Tensor& positions) {
  Documents documents;
  documents.positions = positions;
  const at::Tensor flat = positions.contiguous();
  const int64_t* position = flat.data_ptr<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (position[i] == 0) documents.lengths.push_back(0);
    ++documents.lengths.back();
  }
  if (documents.empty()) return documents;
  documents.longest = *std::max_element(documents.lengths.begin(), documents.lengths.end());
  documents.borders =
      at::empty({static_cast<int64_t>(documents.lengths.size()) + 1}, at::TensorOptions(at::kInt));
  int32_t* border = documents.borders.data_ptr<int32_t>();
  *border = 0;
  for (const int64_t length : documents.lengths) {
    border[1] = border[0] + static_cast<int32_t>(length);
    ++border;
  }
  return documents;
}

}  // namespace hpctl
