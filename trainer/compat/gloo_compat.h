// SPDX-License-Identifier: Apache-2.0
// The relevant differences between Gloo releases: rendezvous takes `Store&` up to 2023 and
// `std::shared_ptr<Store>` since; a handler of the event loop gets the loop that calls it.
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/loop.h>

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

// Called on the loop's thread when a descriptor is ready. One of the two overrides Gloo's; without
// the word `override` both compile with every release.
class GlooHandler : public gloo::transport::tcp::Handler {
 public:
  virtual void handleEvents(int) { on_events(); }
  virtual void handleEvents(gloo::transport::tcp::Loop&, int) { on_events(); }

 protected:
  virtual void on_events() = 0;
};

}  // namespace hpctl::compat
