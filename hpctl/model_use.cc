// SPDX-License-Identifier: Apache-2.0
#include "hpctl/model_use.h"

#include <utility>
#include <vector>

#include "common/base/bounded_json.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "hpctl/captured_program.h"
#include "hpctl/exit_codes.h"
#include "hpctl/interrupt_flag.h"
#include "hpctl/open_job.h"
#include "hpctl/program_path.h"
#include "trainer/checkpoint/inspect.h"

namespace hpctl {

Result<std::string> resolve_model(const std::string& word) {
  if (is_accessible(word) || word.find('/') != std::string::npos) return resolve_checkpoint(word);
  HP_TRY_ASSIGN(const OpenJob job, open_job(word));
  const JobView& view = job.view;
  return resolve_checkpoint_of(view.checkpoint_dir, {view.job, view.name, view.job_uuid});
}

Result<std::variant<std::string, int>> ask_program(const std::string& name,
                                                   std::vector<std::string> words) {
  using Answer = std::variant<std::string, int>;
  HP_TRY_ASSIGN(const std::string program, sibling_program(name));
  words.insert(words.begin(), program);
  const InterruptFlag flag;
  HP_TRY_ASSIGN(Captured captured, run_captured(words));
  if (captured.exit_code == 0) return Answer(std::move(captured.out));
  if (InterruptFlag::raised()) return Answer(kExitInterrupted);
  return Answer(captured.exit_code == kExitUsage ? kExitUsage : kExitFailed);
}

Result<std::variant<nlohmann::json, int>> ask_trainer(const nlohmann::json& request) {
  using Answer = std::variant<nlohmann::json, int>;
  HP_TRY_ASSIGN(const auto said, ask_program("hptrain", {"--request", json_text(request)}));
  if (const int* status = std::get_if<int>(&said)) return Answer(*status);
  nlohmann::json answer = parse_json_or_discard(std::get<std::string>(said));
  if (answer.is_object()) return Answer(std::move(answer));
  return Error{ErrorCode::kInternal,
               "hptrain gave no answer; its version is another one: hptrain "
               "--version"};
}

}  // namespace hpctl
