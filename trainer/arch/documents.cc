// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/documents.h"

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
  return documents;
}

}  // namespace hpctl
