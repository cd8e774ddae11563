// SPDX-License-Identifier: Apache-2.0
// Short texts: what people write in a value, what Slurm calls nodes, addresses, names of files.
#include <sys/socket.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "common/base/clock.h"
#include "common/base/quantity.h"
#include "common/base/word_enum.h"
#include "common/job/lineage.h"
#include "common/net/host_port.h"
#include "common/net/socket_address.h"
#include "common/process/python_command.h"
#include "common/slurm/node_ranges.h"
#include "common/worker/injected_fault.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/properties.h"

namespace hpctl::fuzz {
namespace {

void run_node_ranges(std::string_view input) {
  constexpr size_t kMostNames = 500;
  const auto names = from_node_ranges(input, kMostNames);
  if (!names.ok()) return require_explained(names.error());
  require(names->size() <= kMostNames, "more names than asked for");
  const std::string text = to_node_ranges(*names, 1U << 20);
  const auto again = from_node_ranges(text, kMostNames);
  require(again.ok(), "its own ranges are not read: " + text);
  require(std::set(again->begin(), again->end()) == std::set(names->begin(), names->end()),
          "written, they are other names: " + text);
  for (const size_t most : {size_t{0}, size_t{10}, size_t{60}}) {
    require(to_node_ranges(*names, most).size() <= most, "longer than asked for");
  }
}

std::vector<std::string> node_range_seeds() {
  return {"p5-[1-64,70],head",
          "n[001-003],n[1-3],a",
          "queue-1-dy-p5-[0-3]",
          "n999999999",
          "[1-2]",
          "n[5-4]"};
}

void run_address(std::string_view input) {
  const std::string text(input);
  const auto address = SocketAddress::parse(text);
  const auto listener = SocketAddress::parse_listener(text);
  require(!address.ok() || listener.ok(), "an address that cannot be listened on");
  if (!address.ok()) return require_explained(address.error());
  const bool is_v4 = address->family() == AF_INET;
  const std::string again =
      (is_v4 ? address->ip() : "[" + address->ip() + "]") + ":" + std::to_string(address->port());
  const auto second = SocketAddress::parse(again);
  require(second.ok() && second->ip() == address->ip() && second->port() == address->port(),
          "written, it is another address: " + again);
}

void run_host_port(std::string_view input) {
  if (const auto parsed = HostPort::parse(input); parsed.ok()) {
    const auto again = HostPort::parse(parsed->text());
    require(again.ok() && again->host == parsed->host && again->port == parsed->port,
            "written, it is another: " + parsed->text());
  } else {
    require_explained(parsed.error());
  }
  if (const auto peer = CallPeer::parse(input)) {
    const auto again = CallPeer::parse(peer->family + ":" + peer->end.text());
    require(again && again->origin() == peer->origin() && again->end.port == peer->end.port,
            "written, it is another peer");
  }
}

std::vector<std::string> host_port_seeds() {
  return {"n1:7300", "[2001:db8::1]:0", "ipv4:192.0.2.1:4711", "ipv6:%5B2001:db8::1%5D:1"};
}

std::vector<std::string> address_seeds() {
  return {"192.0.2.1:80", "[2001:db8::1]:65535", "[::ffff:1.2.3.4]:1", "0.0.0.0:0"};
}

void run_quantity(std::string_view input) {
  if (const auto ms = parse_duration_ms(input); ms.ok()) {
    require(*ms >= 0, "a duration before it began");
    const auto again = parse_duration_ms(format_duration_ms(*ms));
    require(again.ok() && *again == *ms, "written, it is another duration");
  } else {
    require_explained(ms.error());
  }
  if (const auto minutes = parse_time_limit_minutes(input); minutes.ok()) {
    const auto again = parse_time_limit_minutes(format_time_limit(*minutes));
    require(*minutes >= 0 && again.ok() && *again == *minutes, "written, it is another limit");
  }
  if (const auto mib = parse_memory_mib(input); mib.ok()) require(*mib >= 0, "less than no memory");
}

std::vector<std::string> quantity_seeds() {
  return {"500ms", "2s",  "30m",  "7d",      "7-00:00:00", "12:34:56",
          "64G",   "512", "1-12", "1-12:30", "999999999T", "365d"};
}

void run_time(std::string_view input) {
  const int64_t ms = parse_wall_ms(std::string(input));
  if (ms == 0) return;
  const std::string text = format_wall_ms(ms);
  require(parse_wall_ms(text) == ms, "written, it is another time: " + text);
}

std::vector<std::string> time_seeds() {
  return {"2026-11-25T10:30:00.123Z", "2026-11-25", "1969-12-31 23:59:59", "9999-12-31T23:59:60Z"};
}

// Names of directories, words on command lines.
void run_word(std::string_view input) {
  const std::string text(input);
  if (const auto ref = parse_checkpoint_name(text)) {
    require(ref->name() == text, "a checkpoint of another name");
  }
  if (const auto fault = from_word<InjectedFault>(text)) {
    require(to_word(*fault) == text, "another fault");
  }
}

std::vector<std::string> word_seeds() {
  return {"step-40.g3",
          "step-0.g0",
          "kill-worker",
          "RUNNING,FAILED",
          "live",
          "-step,name",
          "step-1000000000000001.g1"};
}

void require_runnable(const PythonCommand& command) {
  require(!command.interpreter.empty(), "nothing runs it");
  require(!command.target.empty() || command.main == PythonMain::kCode, "Python runs nothing");
}

// Words with newlines between; also a script's first line, and then its command.
void run_command(std::string_view input) {
  std::vector<std::string> words;
  std::istringstream in{std::string(input)};
  for (std::string word; std::getline(in, word);) words.push_back(word);
  if (const auto command = python_command(words)) {
    require_runnable(*command);
    require(command->interpreter.size() + command->arguments.size() <= words.size(),
            "more words than there were");
  }
  if (words.empty()) return;
  const std::string line = words.front();
  words.erase(words.begin());
  if (!may_be_script(words)) return;
  if (const auto command = python_command_by(line, words)) require_runnable(*command);
}

std::vector<std::string> command_seeds() {
  return {"python3\ntrain.py\n--lr\n1", "uv\nrun\n--\npython\n-u\n-m\na.b\nx",
          "python\n-c\nprint(1)", "#!/usr/bin/env -S python3 -u\n./train.py\n1",
          "python3\n-X\nfaulthandler\n-Wd\n-\n"};
}

}  // namespace

std::vector<Harness> text_harnesses() {
  return {{"node_ranges", run_node_ranges, node_range_seeds},
          {"address", run_address, address_seeds},
          {"host_port", run_host_port, host_port_seeds},
          {"quantity", run_quantity, quantity_seeds},
          {"time", run_time, time_seeds},
          {"word", run_word, word_seeds},
          {"command", run_command, command_seeds}};
}

}  // namespace hpctl::fuzz
