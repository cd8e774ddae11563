// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/fabric/port.h"

#include "agent/nodecheck/fabric/loaded.h"

#ifdef HPCTL_HAVE_LIBFABRIC

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>
#include <vector>

namespace hpctl::agent {
// Not without a name: Parts, which has them, is known to others.
namespace port_parts {

constexpr size_t kMaxNameBytes = 256;

template <typename Fid>
struct Close {
  void operator()(Fid* object) const { fi_close(&object->fid); }
};
template <typename Fid>
using Owned = std::unique_ptr<Fid, Close<Fid>>;

template <typename Fid>
Owned<Fid> own(Fid* object) {
  return Owned<Fid>(object);
}

// A send or receive. Its address is what libfabric gives back when it has ended.
struct Operation {
  fi_context2 context{};  // the provider's, while it is under way
  bool is_under_way = false;
  FabricPort::Ended what;
};

}  // namespace port_parts

using port_parts::own;

// In the order of their making; each is closed before what it needs, the endpoint first.
struct FabricPort::Parts {
  const LoadedFabric& f;
  FabricInfo info;
  port_parts::Owned<fid_fabric> fabric;
  port_parts::Owned<fid_domain> domain;
  port_parts::Owned<fid_av> addresses;
  port_parts::Owned<fid_cq> queue;
  std::vector<char> sent;
  std::vector<char> received;
  port_parts::Owned<fid_mr> sent_region;
  port_parts::Owned<fid_mr> received_region;
  std::array<port_parts::Operation, 2 * kMostUnderWay> operations;
  port_parts::Owned<fid_ep> endpoint;
  fi_addr_t peer = FI_ADDR_UNSPEC;

  Parts(const LoadedFabric& loaded, FabricInfo found) : f(loaded), info(std::move(found)) {}

  Outcome open(size_t sent_bytes, size_t received_bytes) {
    fid_fabric* new_fabric = nullptr;
    HP_TRY(f.check("fi_fabric", f.open_fabric(info->fabric_attr, &new_fabric, nullptr)));
    fabric = own(new_fabric);
    fid_domain* new_domain = nullptr;
    HP_TRY(f.check("fi_domain", fi_domain(new_fabric, info.get(), &new_domain, nullptr)));
    domain = own(new_domain);
    fi_av_attr of_addresses{};
    of_addresses.type = FI_AV_UNSPEC;
    fid_av* new_addresses = nullptr;
    HP_TRY(f.check("fi_av_open", fi_av_open(new_domain, &of_addresses, &new_addresses, nullptr)));
    addresses = own(new_addresses);
    fi_cq_attr of_queue{};
    of_queue.format = FI_CQ_FORMAT_CONTEXT;
    of_queue.size = operations.size();
    fid_cq* new_queue = nullptr;
    HP_TRY(f.check("fi_cq_open", fi_cq_open(new_domain, &of_queue, &new_queue, nullptr)));
    queue = own(new_queue);
    HP_TRY(take_memory(sent, sent_bytes, FI_SEND, sent_region));
    HP_TRY(take_memory(received, received_bytes, FI_RECV, received_region));
    return open_endpoint();
  }

  Outcome take_memory(std::vector<char>& memory, size_t bytes, uint64_t access,
                      port_parts::Owned<fid_mr>& region) {
    memory.resize(bytes);
    if (bytes == 0 || (info->domain_attr->mr_mode & FI_MR_LOCAL) == 0) return Ok{};
    fid_mr* made = nullptr;
    HP_TRY(f.check("fi_mr_reg", fi_mr_reg(domain.get(), memory.data(), bytes, access, 0, access, 0,
                                          &made, nullptr)));
    region = own(made);
    return Ok{};
  }

  Outcome open_endpoint() {
    fid_ep* made = nullptr;
    HP_TRY(f.check("fi_endpoint", fi_endpoint(domain.get(), info.get(), &made, nullptr)));
    endpoint = own(made);
    HP_TRY(f.check("fi_ep_bind", fi_ep_bind(made, &addresses->fid, 0)));
    HP_TRY(f.check("fi_ep_bind", fi_ep_bind(made, &queue->fid, FI_TRANSMIT | FI_RECV)));
    return f.check("fi_enable", fi_enable(made));
  }

  Result<bool> begin(const Ended& what, size_t offset, size_t bytes) {
    const auto under_way = static_cast<size_t>(std::count_if(
        operations.begin(), operations.end(), [&](const port_parts::Operation& operation) {
          return operation.is_under_way && operation.what.was_received == what.was_received;
        }));
    if (under_way == kMostUnderWay) return false;
    port_parts::Operation& operation =
        *std::find_if(operations.begin(), operations.end(),
                      [](const port_parts::Operation& each) { return !each.is_under_way; });
    operation.what = what;
    const ssize_t status =
        what.was_received
            ? fi_trecv(endpoint.get(), received.data() + offset, bytes, descriptor(received_region),
                       FI_ADDR_UNSPEC, what.tag, 0, &operation.context)
            : fi_tsend(endpoint.get(), sent.data() + offset, bytes, descriptor(sent_region), peer,
                       what.tag, &operation.context);
    if (status == -FI_EAGAIN) return false;
    HP_TRY(f.check(what.was_received ? "fi_trecv" : "fi_tsend", status));
    operation.is_under_way = true;
    return true;
  }

  static void* descriptor(const port_parts::Owned<fid_mr>& region) {
    return region ? fi_mr_desc(region.get()) : nullptr;
  }
};

FabricPort::FabricPort(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
FabricPort::~FabricPort() = default;

Result<std::unique_ptr<FabricPort>> FabricPort::open(const FabricDomain& domain, size_t sent_bytes,
                                                     size_t received_bytes) {
  const auto& fabric = loaded_fabric();
  if (!fabric.ok()) return fabric.error();
  HP_TRY_ASSIGN(FabricInfo info,
                find_fabric_info(*fabric, domain.provider, domain.name, domain.source));
  auto parts = std::make_unique<Parts>(*fabric, std::move(info));
  HP_TRY(parts->open(sent_bytes, received_bytes));
  return std::unique_ptr<FabricPort>(new FabricPort(std::move(parts)));
}

std::string FabricPort::name() const {
  std::string name(port_parts::kMaxNameBytes, '\0');
  size_t size = name.size();
  if (fi_getname(&parts_->endpoint->fid, name.data(), &size) != 0) return "";
  name.resize(size);
  return name;
}

Outcome FabricPort::connect(const std::string& peer_name) {
  // A name in the provider's form has a fixed size, which libfabric does not check.
  if (peer_name.empty() || peer_name.size() != name().size()) {
    return Error{ErrorCode::kInvalidArgument, "the peer's address is of another form"};
  }
  if (fi_av_insert(parts_->addresses.get(), peer_name.data(), 1, &parts_->peer, 0, nullptr) == 1) {
    return Ok{};
  }
  return Error{ErrorCode::kUnavailable, "fi_av_insert refused the peer's address"};
}

std::span<char> FabricPort::sent() { return parts_->sent; }
std::span<const char> FabricPort::received() const { return parts_->received; }

Result<bool> FabricPort::send(uint64_t tag, size_t offset, size_t bytes) {
  return parts_->begin({false, tag}, offset, bytes);
}

Result<bool> FabricPort::receive(uint64_t tag, size_t offset, size_t bytes) {
  return parts_->begin({true, tag}, offset, bytes);
}

Result<std::optional<FabricPort::Ended>> FabricPort::progress() {
  fi_cq_entry entry{};
  const ssize_t n = fi_cq_read(parts_->queue.get(), &entry, 1);
  if (n == -FI_EAGAIN) return std::optional<Ended>();
  if (n == 1) {
    for (port_parts::Operation& operation : parts_->operations) {
      if (&operation.context != entry.op_context) continue;
      operation.is_under_way = false;
      return std::optional(operation.what);
    }
    return std::optional<Ended>();
  }
  fi_cq_err_entry error{};
  if (n == -FI_EAVAIL) fi_cq_readerr(parts_->queue.get(), &error, 0);
  HP_TRY(parts_->f.check("completion", error.err != 0 ? -error.err : n));
  return std::optional<Ended>();
}

}  // namespace hpctl::agent

#else

namespace hpctl::agent {

struct FabricPort::Parts {};
FabricPort::FabricPort(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
FabricPort::~FabricPort() = default;

// Nothing but open() is ever called.
Result<std::unique_ptr<FabricPort>> FabricPort::open(const FabricDomain&, size_t, size_t) {
  return no_fabric_headers();
}
std::string FabricPort::name() const { return ""; }
Outcome FabricPort::connect(const std::string&) { return no_fabric_headers(); }
std::span<char> FabricPort::sent() { return {}; }
std::span<const char> FabricPort::received() const { return {}; }
Result<bool> FabricPort::send(uint64_t, size_t, size_t) { return no_fabric_headers(); }
Result<bool> FabricPort::receive(uint64_t, size_t, size_t) { return no_fabric_headers(); }
Result<std::optional<FabricPort::Ended>> FabricPort::progress() { return no_fabric_headers(); }

}  // namespace hpctl::agent

#endif
