// SPDX-License-Identifier: Apache-2.0
#include "hpctl/checkpoint_exchange.h"

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/interrupt_flag.h"
#include "trainer/checkpoint/huggingface.h"

namespace hpctl {
namespace {

int report_done(const Invocation& invocation, const HfReport& done, const std::string& advice) {
  std::ostream& out = invocation.terminal.out;
  if (invocation.json()) {
    out << json_text(nlohmann::ordered_json{{"path", done.path},
                                            {"tensors", done.tensors},
                                            {"bytes", done.bytes},
                                            {"files", done.files}})
        << "\n";
    return kExitOk;
  }
  out << printable(done.path) << ": " << done.tensors << " tensors, " << done.bytes << " bytes in "
      << done.files << (done.files == 1 ? " file\n" : " files\n");
  if (!advice.empty()) out << printable(advice) << "\n";
  return kExitOk;
}

// Ctrl-C ends it in order, so that gigabytes of a part are not left.
int report_failed(const Terminal& terminal, const Error& error) {
  const int status = report(terminal, error);
  return InterruptFlag::raised() ? kExitInterrupted : status;
}

}  // namespace

int run_export(const Invocation& invocation, const std::string& step_dir, const std::string& out) {
  HfExportOptions options;
  if (const auto dtype = invocation.options.find("--dtype"); dtype != invocation.options.end()) {
    if (dtype->second != "fp32" && dtype->second != "bf16") {
      return report_usage(invocation.terminal, "checkpoint",
                          "--dtype: expected fp32 or bf16, found \"" + dtype->second + "\"");
    }
    options.bf16 = dtype->second == "bf16";
  }
  options.merge = invocation.has("--merge");
  const InterruptFlag flag;
  options.stop_asked = InterruptFlag::raised;
  const auto done = export_huggingface(step_dir, out, options);
  if (!done.ok()) return report_failed(invocation.terminal, done.error());
  return report_done(invocation, *done, "");
}

int run_import(const Invocation& invocation, const std::string& model_dir, const std::string& out) {
  const InterruptFlag flag;
  const auto done = import_huggingface(model_dir, out, InterruptFlag::raised);
  if (!done.ok()) return report_failed(invocation.terminal, done.error());
  return report_done(invocation, *done,
                     "start a job from it with checkpoint.resume: " + done->path);
}

}  // namespace hpctl
