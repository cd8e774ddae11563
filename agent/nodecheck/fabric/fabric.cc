// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/fabric/fabric.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "agent/nodecheck/fabric/loaded.h"

#ifdef HPCTL_HAVE_LIBFABRIC

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <chrono>
#include <cstring>

#include "agent/nodecheck/fabric/port.h"

namespace hpctl::agent {
namespace {

// Libraries that libfabric needs (psm2) take over signals when they are loaded, and write a file
// into the working directory when the process then ends by one.
class KeptHandlers {
 public:
  KeptHandlers() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], nullptr, &kept_[i]);
  }
  ~KeptHandlers() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &kept_[i], nullptr);
  }
  KeptHandlers(const KeptHandlers&) = delete;
  KeptHandlers& operator=(const KeptHandlers&) = delete;

 private:
  static constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGILL,  SIGABRT,
                                          SIGFPE,  SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> kept_{};
};

constexpr uint32_t kApi = FI_VERSION(1, 14);
constexpr size_t kTransferBytes = 256U << 10;
constexpr const char* kSymbols = "FABRIC_1.3";  // the layout of fi_info that the headers describe

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

// One message between two ports of this process.
class OwnTransfer {
 public:
  OwnTransfer(FabricPort& sender, FabricPort& receiver, int deadline_ms)
      : sender_(sender),
        receiver_(receiver),
        deadline_(std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms)) {}

  Outcome run() {
    HP_TRY(post(true));
    HP_TRY(post(false));
    while (!sent_ || !received_) {
      HP_TRY(progress());
      if (is_late()) {
        return Error{ErrorCode::kUnavailable,
                     std::string("the transfer did not complete (sent: ") + (sent_ ? "yes" : "no") +
                         ", received: " + (received_ ? "yes" : "no") + ")"};
      }
    }
    return Ok{};
  }

 private:
  bool is_late() const { return std::chrono::steady_clock::now() > deadline_; }

  Outcome post(bool receive) {
    for (;;) {
      HP_TRY_ASSIGN(const bool begun, receive ? receiver_.receive(0, 0, kTransferBytes)
                                              : sender_.send(0, 0, kTransferBytes));
      if (begun) return Ok{};
      if (is_late()) return Error{ErrorCode::kUnavailable, "the endpoint stays busy"};
      HP_TRY(progress());  // connections are made while completions are asked for
    }
  }

  Outcome progress() {
    HP_TRY_ASSIGN(const auto sent, sender_.progress());
    HP_TRY_ASSIGN(const auto received, receiver_.progress());
    sent_ = sent_ || sent.has_value();
    received_ = received_ || received.has_value();
    return Ok{};
  }

  FabricPort& sender_;
  FabricPort& receiver_;
  const std::chrono::steady_clock::time_point deadline_;
  bool sent_ = false;
  bool received_ = false;
};

}  // namespace

LoadedFabric::LoadedFabric(Library loaded)
    : library(std::move(loaded)),
      getinfo(library.function<decltype(fi_getinfo)>("fi_getinfo", kSymbols)),
      freeinfo(library.function<decltype(fi_freeinfo)>("fi_freeinfo", kSymbols)),
      dupinfo(library.function<decltype(fi_dupinfo)>("fi_dupinfo", kSymbols)),
      open_fabric(library.function<decltype(fi_fabric)>("fi_fabric", "FABRIC_1.1")),
      text(library.function<decltype(fi_strerror)>("fi_strerror")),
      version(library.function<decltype(fi_version)>("fi_version")) {}

bool LoadedFabric::is_complete() const {
  return getinfo != nullptr && freeinfo != nullptr && dupinfo != nullptr &&
         open_fabric != nullptr && text != nullptr && version != nullptr;
}

Outcome LoadedFabric::check(const char* step, int64_t status) const {
  if (status == 0) return Ok{};
  return Error{ErrorCode::kUnavailable, std::string(step) + ": " + text(static_cast<int>(-status))};
}

const Result<LoadedFabric>& loaded_fabric() {
  static const Result<LoadedFabric> loaded = []() -> Result<LoadedFabric> {
    const KeptHandlers kept;
    auto library = Library::open({"/opt/amazon/efa/lib/libfabric.so.1",
                                  "/opt/amazon/efa/lib64/libfabric.so.1", "libfabric.so.1"});
    if (!library.ok()) {
      return Error{ErrorCode::kUnavailable, "no libfabric: " + library.error().message};
    }
    LoadedFabric result(std::move(library).value());
    if (result.is_complete()) return result;
    return Error{ErrorCode::kUnavailable, result.library.name() + " lacks functions of libfabric"};
  }();
  return loaded;
}

Result<FabricInfo> find_fabric_info(const LoadedFabric& f, const std::string& provider,
                                    const std::string& domain, const std::string& source) {
  const FabricInfo hints(f.dupinfo(nullptr), f.freeinfo);
  if (!hints) return Error{ErrorCode::kResourceExhausted, "no memory for libfabric"};
  hints->caps = FI_TAGGED;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  // Freed with the hints, by libfabric's free().
  hints->fabric_attr->prov_name = ::strdup(provider.c_str());
  if (!domain.empty()) hints->domain_attr->name = ::strdup(domain.c_str());
  const char* node = source.empty() ? nullptr : source.c_str();
  const uint64_t flags = source.empty() ? 0 : FI_SOURCE | FI_NUMERICHOST;
  fi_info* found = nullptr;
  const int status = f.getinfo(kApi, node, nullptr, flags, hints.get(), &found);
  if (status == 0) return FabricInfo(found, f.freeinfo);
  return Error{status == -FI_ENODATA ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
               "fi_getinfo for provider " + provider + ": " + f.text(-status)};
}

Result<std::vector<FabricDomain>> fabric_domains(const std::string& provider,
                                                 const std::string& source) {
  const auto& fabric = loaded_fabric();
  if (!fabric.ok()) return fabric.error();
  HP_TRY_ASSIGN(const FabricInfo info, find_fabric_info(*fabric, provider, "", source));
  std::vector<FabricDomain> domains;
  for (const fi_info* entry = info.get(); entry != nullptr; entry = entry->next) {
    FabricDomain domain{text_or_empty(entry->fabric_attr->prov_name),
                        text_or_empty(entry->domain_attr->name),
                        text_or_empty(entry->fabric_attr->name), source};
    const bool is_known =
        std::any_of(domains.begin(), domains.end(), [&](const FabricDomain& other) {
          return other.provider == domain.provider && other.name == domain.name;
        });
    if (!is_known) domains.push_back(std::move(domain));
  }
  return domains;
}

Result<TransferReport> try_transfer(const FabricDomain& domain, int deadline_ms) {
  HP_TRY_ASSIGN(const auto sender, FabricPort::open(domain, kTransferBytes, 0));
  HP_TRY_ASSIGN(const auto receiver, FabricPort::open(domain, 0, kTransferBytes));
  HP_TRY(sender->connect(receiver->name()));
  HP_TRY(receiver->connect(sender->name()));
  const auto sent = sender->sent();
  for (size_t i = 0; i < kTransferBytes; ++i) sent[i] = static_cast<char>(i * 31 + i / 251);
  const auto begin = std::chrono::steady_clock::now();
  HP_TRY(OwnTransfer(*sender, *receiver, deadline_ms).run());
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  const auto received = receiver->received();
  if (std::equal(received.begin(), received.end(), sent.begin(), sent.end())) {
    return TransferReport{kTransferBytes, taken.count()};
  }
  return Error{ErrorCode::kDataLoss, "what arrived differs from what was sent"};
}

std::string fabric_version() {
  const auto& fabric = loaded_fabric();
  if (!fabric.ok()) return "";
  const uint32_t version = fabric->version();
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

}  // namespace hpctl::agent

#else

namespace hpctl::agent {

Result<std::vector<FabricDomain>> fabric_domains(const std::string&, const std::string&) {
  return no_fabric_headers();
}
Result<TransferReport> try_transfer(const FabricDomain&, int) { return no_fabric_headers(); }
std::string fabric_version() { return ""; }

}  // namespace hpctl::agent

#endif

namespace hpctl::agent {

Result<std::vector<FabricDomain>> chosen_domains(const std::string& source) {
  const auto of = [&](const std::string& provider) {
    auto found = fabric_domains(provider, source);
    // EFA's devices and the node's own memory are found by name alone.
    return found.ok() || source.empty() ? found : fabric_domains(provider);
  };
  const char* asked = std::getenv("FI_PROVIDER");
  const std::string named = asked == nullptr ? "" : asked;
  if (named == "efa") return fabric_domains(named);
  if (!named.empty()) return of(named);
  auto domains = fabric_domains("efa");
  return domains.ok() ? domains : of("tcp");
}

}  // namespace hpctl::agent
