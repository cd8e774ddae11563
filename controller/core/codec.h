// SPDX-License-Identifier: Apache-2.0
// Rows, events and actions as JSON text and back, for the store, the simulator's digests and
// `hpctl replay`. decode(encode(x)) == x; unknown fields are ignored, missing ones take their
// default, so that an older database opens under a newer build.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "controller/core/core.h"

namespace hpctl::core {

std::string encode(const Job& row);
std::string encode(const Node& row);
std::string encode(const Slot& row);
std::string encode(const std::vector<const Slot*>& rows);
std::string encode(const Action& action);
std::string encode(const Event& event);
std::string encode(const LogEntry& entry);

Result<Job> decode_job(const std::string& text);
Result<Node> decode_node(const std::string& text);
Result<Slot> decode_slot(const std::string& text);
Result<std::vector<Slot>> decode_slots(const std::string& text);
Result<Action> decode_action(const std::string& text);
Result<Event> decode_event(const std::string& text);
Result<LogEntry> decode_log_entry(const std::string& text);

// "JobSubmitted", "LaunchNode", ...
const char* type_name(const EventBody& body);
const char* type_name(const ActionBody& body);

}  // namespace hpctl::core
