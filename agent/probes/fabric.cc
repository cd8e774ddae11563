// SPDX-License-Identifier: Apache-2.0
#include "agent/probes/fabric.h"

#include <cstdlib>

#ifdef HPCTL_HAVE_LIBFABRIC

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "common/base/library.h"

namespace hpctl::agent {
namespace {

constexpr uint32_t kApi = FI_VERSION(1, 14);
constexpr size_t kTransferBytes = 256U << 10;
constexpr const char* kSymbols = "FABRIC_1.3";  // the layout of fi_info that the headers describe

struct Fabric {
  explicit Fabric(Library loaded)
      : library(std::move(loaded)),
        getinfo(library.function<decltype(fi_getinfo)>("fi_getinfo", kSymbols)),
        freeinfo(library.function<decltype(fi_freeinfo)>("fi_freeinfo", kSymbols)),
        dupinfo(library.function<decltype(fi_dupinfo)>("fi_dupinfo", kSymbols)),
        open_fabric(library.function<decltype(fi_fabric)>("fi_fabric", "FABRIC_1.1")),
        text(library.function<decltype(fi_strerror)>("fi_strerror")),
        version(library.function<decltype(fi_version)>("fi_version")) {}

  bool is_complete() const {
    return getinfo != nullptr && freeinfo != nullptr && dupinfo != nullptr &&
           open_fabric != nullptr && text != nullptr && version != nullptr;
  }

  Library library;
  decltype(fi_getinfo)* getinfo;
  decltype(fi_freeinfo)* freeinfo;
  decltype(fi_dupinfo)* dupinfo;
  decltype(fi_fabric)* open_fabric;
  decltype(fi_strerror)* text;
  decltype(fi_version)* version;
};

// One for the process: providers do not like to be unloaded.
const Result<Fabric>& fabric() {
  static const Result<Fabric> loaded = []() -> Result<Fabric> {
    auto library = Library::open({"/opt/amazon/efa/lib/libfabric.so.1",
                                  "/opt/amazon/efa/lib64/libfabric.so.1", "libfabric.so.1"});
    if (!library.ok()) {
      return Error{ErrorCode::kUnavailable, "no libfabric: " + library.error().message};
    }
    Fabric result(std::move(library).value());
    if (result.is_complete()) return result;
    return Error{ErrorCode::kUnavailable, result.library.name() + " lacks functions of libfabric"};
  }();
  return loaded;
}

using Info = std::unique_ptr<fi_info, decltype(fi_freeinfo)*>;

Result<Info> find_info(const Fabric& f, const std::string& provider, const std::string& domain) {
  const Info hints(f.dupinfo(nullptr), f.freeinfo);
  if (!hints) return Error{ErrorCode::kResourceExhausted, "no memory for libfabric"};
  hints->caps = FI_MSG;
  hints->mode = FI_CONTEXT;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  // Freed with the hints, by libfabric's free().
  hints->fabric_attr->prov_name = ::strdup(provider.c_str());
  if (!domain.empty()) hints->domain_attr->name = ::strdup(domain.c_str());
  fi_info* found = nullptr;
  const int status = f.getinfo(kApi, nullptr, nullptr, 0, hints.get(), &found);
  if (status == 0) return Info(found, f.freeinfo);
  return Error{status == -FI_ENODATA ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
               "fi_getinfo for provider " + provider + ": " + f.text(-status)};
}

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

template <typename Fid>
struct Close {
  void operator()(Fid* object) const { fi_close(&object->fid); }
};
template <typename Fid>
using Owned = std::unique_ptr<Fid, Close<Fid>>;

struct Endpoint {
  Owned<fid_cq> queue;
  Owned<fid_ep> endpoint;
  std::vector<char> buffer;
  Owned<fid_mr> region;
  fi_context context{};
  void* descriptor() const { return region ? fi_mr_desc(region.get()) : nullptr; }
};

// The objects of one transfer, in the order of their making; each is closed before what it needs.
class Transfer {
 public:
  Transfer(const Fabric& f, Info info, int deadline_ms)
      : f_(f),
        info_(std::move(info)),
        deadline_(std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms)) {}

  Result<TransferReport> run() {
    HP_TRY(open());
    HP_TRY_ASSIGN(const fi_addr_t to, insert_address(receiver_));
    HP_TRY_ASSIGN(const fi_addr_t own, insert_address(sender_));
    for (size_t i = 0; i < kTransferBytes; ++i) {
      sender_.buffer[i] = static_cast<char>(i * 31 + i / 251);
    }
    const auto begin = std::chrono::steady_clock::now();
    HP_TRY(post(own, true));
    HP_TRY(post(to, false));
    HP_TRY(wait_for_both());
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    if (receiver_.buffer != sender_.buffer) {
      return Error{ErrorCode::kDataLoss, "what arrived differs from what was sent"};
    }
    return TransferReport{kTransferBytes, taken.count()};
  }

 private:
  Outcome check(const char* step, int64_t status) const {
    if (status == 0) return Ok{};
    return Error{ErrorCode::kUnavailable,
                 std::string(step) + ": " + f_.text(static_cast<int>(-status))};
  }

  template <typename Fid>
  static Owned<Fid> own(Fid* object) {
    return Owned<Fid>(object);
  }

  Outcome open() {
    fid_fabric* fabric = nullptr;
    HP_TRY(check("fi_fabric", f_.open_fabric(info_->fabric_attr, &fabric, nullptr)));
    fabric_ = own(fabric);
    fid_domain* domain = nullptr;
    HP_TRY(check("fi_domain", fi_domain(fabric, info_.get(), &domain, nullptr)));
    domain_ = own(domain);
    fi_av_attr attributes{};
    attributes.type = FI_AV_UNSPEC;
    fid_av* addresses = nullptr;
    HP_TRY(check("fi_av_open", fi_av_open(domain, &attributes, &addresses, nullptr)));
    addresses_ = own(addresses);
    HP_TRY(open_endpoint(sender_));
    return open_endpoint(receiver_);
  }

  Outcome open_endpoint(Endpoint& e) {
    fi_cq_attr attributes{};
    attributes.format = FI_CQ_FORMAT_CONTEXT;
    attributes.size = 16;
    fid_cq* queue = nullptr;
    HP_TRY(check("fi_cq_open", fi_cq_open(domain_.get(), &attributes, &queue, nullptr)));
    e.queue = own(queue);
    fid_ep* endpoint = nullptr;
    HP_TRY(check("fi_endpoint", fi_endpoint(domain_.get(), info_.get(), &endpoint, nullptr)));
    e.endpoint = own(endpoint);
    HP_TRY(check("fi_ep_bind", fi_ep_bind(endpoint, &addresses_->fid, 0)));
    HP_TRY(check("fi_ep_bind", fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV)));
    HP_TRY(check("fi_enable", fi_enable(endpoint)));
    e.buffer.resize(kTransferBytes);
    if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) == 0) return Ok{};
    fid_mr* region = nullptr;
    HP_TRY(check("fi_mr_reg",
                 fi_mr_reg(domain_.get(), e.buffer.data(), e.buffer.size(), FI_SEND | FI_RECV, 0,
                           &e == &sender_ ? 1 : 2, 0, &region, nullptr)));
    e.region = own(region);
    return Ok{};
  }

  Result<fi_addr_t> insert_address(const Endpoint& e) {
    std::array<char, 256> name{};
    size_t size = name.size();
    HP_TRY(check("fi_getname", fi_getname(&e.endpoint->fid, name.data(), &size)));
    fi_addr_t address = FI_ADDR_UNSPEC;
    if (fi_av_insert(addresses_.get(), name.data(), 1, &address, 0, nullptr) != 1) {
      return Error{ErrorCode::kUnavailable, "fi_av_insert refused the endpoint's own address"};
    }
    return address;
  }

  bool is_late() const { return std::chrono::steady_clock::now() > deadline_; }

  Outcome post(fi_addr_t peer, bool receive) {
    Endpoint& e = receive ? receiver_ : sender_;
    for (;;) {
      const ssize_t status = receive ? fi_recv(e.endpoint.get(), e.buffer.data(), e.buffer.size(),
                                               e.descriptor(), FI_ADDR_UNSPEC, &e.context)
                                     : fi_send(e.endpoint.get(), e.buffer.data(), e.buffer.size(),
                                               e.descriptor(), peer, &e.context);
      if (status != -FI_EAGAIN) return check(receive ? "fi_recv" : "fi_send", status);
      if (is_late()) return Error{ErrorCode::kUnavailable, "the endpoint stays busy"};
      HP_TRY(progress(sender_, sent_));  // connections are made while completions are asked for
      HP_TRY(progress(receiver_, received_));
    }
  }

  Outcome progress(Endpoint& e, bool& done) {
    fi_cq_entry entry{};
    const ssize_t n = fi_cq_read(e.queue.get(), &entry, 1);
    if (n == 1) done = true;
    if (n == 1 || n == -FI_EAGAIN) return Ok{};
    fi_cq_err_entry error{};
    if (n == -FI_EAVAIL) fi_cq_readerr(e.queue.get(), &error, 0);
    return check("completion", error.err != 0 ? -error.err : n);
  }

  Outcome wait_for_both() {
    while (!sent_ || !received_) {
      HP_TRY(progress(sender_, sent_));
      HP_TRY(progress(receiver_, received_));
      if (is_late()) {
        return Error{ErrorCode::kUnavailable,
                     std::string("the transfer did not complete (sent: ") + (sent_ ? "yes" : "no") +
                         ", received: " + (received_ ? "yes" : "no") + ")"};
      }
    }
    return Ok{};
  }

  const Fabric& f_;
  Info info_;
  const std::chrono::steady_clock::time_point deadline_;
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_av> addresses_;
  Endpoint sender_;
  Endpoint receiver_;
  bool sent_ = false;
  bool received_ = false;
};

}  // namespace

Result<std::vector<FabricDomain>> fabric_domains(const std::string& provider) {
  if (!fabric().ok()) return fabric().error();
  HP_TRY_ASSIGN(const Info info, find_info(*fabric(), provider, ""));
  std::vector<FabricDomain> domains;
  for (const fi_info* entry = info.get(); entry != nullptr; entry = entry->next) {
    FabricDomain domain{text_or_empty(entry->fabric_attr->prov_name),
                        text_or_empty(entry->domain_attr->name),
                        text_or_empty(entry->fabric_attr->name)};
    const bool is_known =
        std::any_of(domains.begin(), domains.end(), [&](const FabricDomain& other) {
          return other.provider == domain.provider && other.name == domain.name;
        });
    if (!is_known) domains.push_back(std::move(domain));
  }
  return domains;
}

Result<TransferReport> try_transfer(const FabricDomain& domain, int deadline_ms) {
  if (!fabric().ok()) return fabric().error();
  HP_TRY_ASSIGN(Info info, find_info(*fabric(), domain.provider, domain.name));
  return Transfer(*fabric(), std::move(info), deadline_ms).run();
}

std::string fabric_version() {
  if (!fabric().ok()) return "";
  const uint32_t version = fabric()->version();
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

}  // namespace hpctl::agent

#else

namespace hpctl::agent {
namespace {

Error not_built() {
  return {ErrorCode::kFailedPrecondition, "this hpagent was built without libfabric's headers"};
}

}  // namespace

Result<std::vector<FabricDomain>> fabric_domains(const std::string&) { return not_built(); }
Result<TransferReport> try_transfer(const FabricDomain&, int) { return not_built(); }
std::string fabric_version() { return ""; }

}  // namespace hpctl::agent

#endif

namespace hpctl::agent {

Result<std::vector<FabricDomain>> chosen_domains() {
  const char* asked = std::getenv("FI_PROVIDER");
  if (asked != nullptr && *asked != '\0') return fabric_domains(asked);
  auto domains = fabric_domains("efa");
  return domains.ok() ? domains : fabric_domains("tcp");
}

}  // namespace hpctl::agent
