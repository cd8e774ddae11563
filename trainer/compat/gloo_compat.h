// SPDX-License-Identifier: Apache-2.0
// The one difference between Gloo releases that we meet: rendezvous takes `Store&` up to 2023 and
// `std::shared_ptr<Store>` since.
#pragma once

#include <gloo/rendezvous/context.h>

#include <memory>

namespace hpctl::compat {

template <typename Context>
void connect_full_mesh(Context& context, const std::shared_ptr<gloo::rendezvous::Store>& store,
                       std::shared_ptr<gloo::transport::Device>& device) {
  if constexpr (requires { context.connectFullMesh(store, device); }) {
    context.connectFullMesh(store, device);
  } else {
    context.connectFullMesh(*store, device);
  }
}

}  // namespace hpctl::compat
