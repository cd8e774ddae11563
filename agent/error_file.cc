// SPDX-License-Identifier: Apache-2.0
#include "agent/error_file.h"

#include <algorithm>
#include <iterator>

#include "common/base/bounded_json.h"
#include "common/base/file.h"
#include "common/base/printable.h"

namespace hpctl::agent {
namespace {

constexpr size_t kMaxBytes = 256U << 10;
constexpr size_t kMaxLine = 1'024;

std::string name_end(int32_t rank) { return ".rank-" + std::to_string(rank) + ".json"; }

}  // namespace

std::string error_file_path(const NodePlace& place, uint64_t generation, int32_t rank) {
  return place.error_directory() + "/g" + std::to_string(generation) + name_end(rank);
}

Outcome prepare_error_file(const NodePlace& place, uint64_t generation, int32_t rank) {
  const std::string directory = place.error_directory();
  HP_TRY(make_directories(directory, 0700));
  HP_TRY_ASSIGN(const auto names, list_directory(directory));
  const std::string own = error_file_path(place, generation, rank);
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    if (path != own && name.ends_with(name_end(rank))) HP_TRY(remove_tree(path));
  }
  return Ok{};
}

std::string read_error_file(const std::string& path) {
  const auto text = read_file(path, kMaxBytes);
  if (!text.ok()) return "";
  const auto document = parse_json_or_discard(*text);
  if (!document.is_object() || !document.contains("message")) return "";
  const nlohmann::json* message = &document["message"];
  if (message->is_object() && message->contains("message")) message = &(*message)["message"];
  return message->is_string() ? printable_line(message->get<std::string>(), kMaxLine) : "";
}

bool tells_lost_peer(std::string_view cause) {
  // Of Gloo, NCCL and the store; in this spelling since PyTorch 1.10 at least.
  constexpr std::string_view kWords[] = {
      "Connection closed by peer", "Connection reset by peer", "Broken pipe",
      "ncclRemoteError",           "remote process exited",    "NCCL communicator was aborted"};
  return std::any_of(std::begin(kWords), std::end(kWords), [&](std::string_view words) {
    return cause.find(words) != std::string_view::npos;
  });
}

// A process that recorded an error and then exited was not ended by the order that came meanwhile.
void explain_exit(v1::WorkerExited& exited, const NodePlace& place) {
  if (exited.exit_code() == 0) return;
  const std::string cause =
      read_error_file(error_file_path(place, exited.generation(), exited.rank()));
  const bool tells_peer = tells_lost_peer(cause.empty() ? exited.message() : cause);
  if (!cause.empty()) {
    exited.set_message(cause);
    if (!tells_peer) exited.set_by_request(false);
  }
  exited.set_peer_lost(tells_peer);
}

}  // namespace hpctl::agent
