// SPDX-License-Identifier: Apache-2.0
#include "controller/agents/holder_probe.h"

#include "common/net/tcp_probe.h"

namespace hpctl {

using core::HolderProbe;

static HolderProbe meaning_of(TcpAnswer answer) {
  switch (answer) {
    case TcpAnswer::kAccepted:
      return HolderProbe::kAnswered;
    case TcpAnswer::kRefused:
      return HolderProbe::kRefused;
    case TcpAnswer::kNone:
      return HolderProbe::kUnanswered;
    case TcpAnswer::kNotAsked:
      return HolderProbe::kNotAsked;
  }
  return HolderProbe::kNotAsked;
}

std::vector<HolderProbe> probe_holders(const std::vector<std::string>& addresses,
                                       std::chrono::milliseconds patience) {
  std::vector<HolderProbe> answers;
  for (const TcpAnswer answer : probe_tcp(addresses, patience)) {
    answers.push_back(meaning_of(answer));
  }
  return answers;
}

}  // namespace hpctl
