// SPDX-License-Identifier: Apache-2.0
// hpctl checkpoint: what lies in a checkpoint directory, and what is to be removed from it or
// resumed from. Needs no controller.
#include <cstdint>
#include <iomanip>
#include <optional>
#include <sstream>

#include "common/base/file.h"
#include "hpctl/checkpoint_changes.h"
#include "hpctl/checkpoint_exchange.h"
#include "hpctl/checkpoint_list.h"
#include "hpctl/directory_answer.h"
#include "hpctl/exit_codes.h"
#include "hpctl/open_job.h"
#include "hpctl/verbs.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/ledger_check.h"

namespace hpctl {
namespace checkpoint_parts {
namespace {

constexpr const char* kHelp = R"(
Looks at checkpoints, removes them, and chooses what the next job resumes from. DIR is a checkpoint
directory (its newest valid checkpoint is meant, except by ls, rm and adopt), one step-N.gG
directory in it, or a JOB: the newest valid checkpoint that this job saved or went on from, also
where another job uses the directory by now.

A chain is what one job saved, and the jobs before it that it continued. A job that starts again in
the same directory (hpctl submit --fresh) begins another chain. Jobs with checkpoint.resume: latest
continue the newest chain.

  ls      all checkpoints with their chains and sizes, the owner of the directory, and what a job
          with resume: latest starts from. States: valid (on the newest chain), foreign (valid on
          another chain), stale (a later generation of its chain started before it), incomplete
          (interrupted, or being written now), damaged
  rm      remove a chain, or checkpoints by name: hpctl checkpoint rm DIR --chain N, or
          hpctl checkpoint rm DIR step-N.gG... Without --yes it only lists them. While the owner of
          the directory lives, or does not answer, the checkpoints that it may need stay
  adopt   make --chain N the newest chain, so that the next job with resume: latest continues it.
          It removes nothing; the former chain can be adopted again. Refused while the owner of the
          directory lives, or does not answer
  show    step, generation, world size and sample cursor of one
  verify  read every byte and compare the checksums
  digest  one line: SHA-256 over parameters, moments, step, sample cursor and skip list. Two runs
          of a job that saw faults or saw none end with the same digest
  diff    tensors that differ between two: hpctl checkpoint diff DIR DIR
  ledger  prove that every sample counted exactly once, from the ledger (job.yaml debug.ledger) in
          DIR/ledger, or: hpctl checkpoint ledger DIR LEDGER_DIR
  export  write the parameters as a Hugging Face model directory (config.json, safetensors):
          hpctl checkpoint export DIR OUT [--dtype fp32|bf16]. If the job began with an imported
          model, its tokenizer files, generation_config.json and special token ids come with it.
          Adapters (workload.train.lora) become what PEFT loads, or with --merge the whole model
  import  make OUT/step-0.g0 of such a directory: hpctl checkpoint import MODEL_DIR OUT. A job
          begins with these weights, fresh moments and step 0 when its checkpoint.resume names it

Examples:
  hpctl checkpoint ls quickstart
  hpctl checkpoint rm quickstart step-20.g1 --yes
  hpctl checkpoint rm /scratch/run1 --chain 3
  hpctl checkpoint adopt /scratch/run1 --chain 3
  hpctl checkpoint show quickstart --json
  hpctl checkpoint verify ~/.hpctl/jobs/1/checkpoints/step-60.g2
  hpctl checkpoint digest 1
  hpctl checkpoint diff 1 2 && echo bit-exact
  hpctl checkpoint export quickstart ./my-model --dtype bf16
  hpctl checkpoint export my-adapters ./merged --merge
  hpctl checkpoint import ./Llama-3.1-8B ~/weights/llama

Options:
  --chain N     rm and adopt: the chain, as ls numbers it: by its newest generation
  --yes         rm: remove them
  --take-directory
                rm (with --yes) and adopt: take the directory from an owner that does not answer,
                such as a job of a home or cluster that is gone. If that job lives after all, it
                ends at its next recovery. A job that lives is refused: cancel it
  --merge       export: adapters are added to the weights that they were trained beside
  --dtype TYPE  export: fp32 (the default, exactly what is stored) or bf16 (rounded to nearest)
  --json  ls: {"checkpoints": [{"name", "step", "generation", "state", "world_size", "bytes",
          "created", "detail", "chain"}], "chains": [{"chain", "job", "job_name", "generations",
          "checkpoints", "bytes", "newest", "owners", "latest"}], "owner": {"uuid", "job", "name",
          "user"} or null, "mirror": {"dir", "step", "behind_ms", "problem"} or null, "resume": NAME
          or ""}; rm: {"removed": [{"name", "bytes"}], "bytes",
          "resume"}; adopt: {"chain", "adopted", "resume"}; show: {"step", "generation", "parent",
          "world_size", "sample_cursor", "skipped"}; verify: {"path", "bytes", "ranges",
          "problems"}; digest: {"path", "digest"}; diff: {"same", "same_position", "tensors",
          "differences": [{"name", "what", "numel", "differing", "first", "max_abs"}]}; ledger:
          {"step", "cursor", "generations", "entries", "undone", "problems"}; export and import:
          {"path", "tensors", "bytes", "files"}

Exit codes: 0 fine, 1 not found, refused, damaged, different or not proven, 2 wrong arguments, 3 the
file system does not answer, 130 export and import: interrupted, nothing is left
)";

// A path, or the checkpoint directory of a job, of which only the job's own checkpoints are meant.
struct Place {
  std::string directory;
  std::optional<JobOfRecords> job;
  JobView view = {};  // then
};

Result<Place> find_place(const std::string& word) {
  HP_TRY(check_directory_answers(word));
  if (is_accessible(word) || word.find('/') != std::string::npos) return Place{word, {}};
  HP_TRY_ASSIGN(const OpenJob job, open_job(word));
  const JobView& view = job.view;
  HP_TRY(check_directory_answers(view.checkpoint_dir));
  return Place{view.checkpoint_dir, JobOfRecords{view.job, view.name, view.job_uuid}, view};
}

Result<std::string> resolve(const Place& place) {
  if (!place.job) return resolve_checkpoint(place.directory);
  return resolve_checkpoint_of(place.directory, *place.job);
}

std::string content_of(const Manifest& m) {
  if (m.weights_only) return "parameters only, imported";
  if (!m.lora.on()) return "parameters and moments";
  return "adapters of rank " + std::to_string(m.lora.rank) + " and their moments, beside " +
         printable(m.lora.base);
}

int show(const Invocation& invocation, const std::string& step_dir) {
  const Terminal& terminal = invocation.terminal;
  const auto manifest = read_manifest(step_dir);
  if (!manifest.ok()) return report(terminal, manifest.error());
  if (invocation.json()) {
    terminal.out << show_json(*manifest) << "\n";
    return kExitOk;
  }
  const Manifest& m = *manifest;
  terminal.out << printable(step_dir) << "\n"
               << "  step           " << m.step << "\n"
               << "  generation     " << m.generation << "\n"
               << "  continues      "
               << (m.parent == 0 ? "the seed" : "generation " + std::to_string(m.parent)) << "\n"
               << "  workers        " << m.world_size << "\n"
               << "  sample cursor  " << m.sample_cursor << " (" << m.skipped.size()
               << " ranges skipped)\n"
               << "  model          dim " << m.model.dim << ", " << m.model.layers << " layers, "
               << m.model.heads << " heads\n"
               << "  content        " << content_of(m) << "\n"
               << "  created        " << created_text(m.created_wall_ms) << "\n";
  if (!m.exact) terminal.out << "  not exact      " << printable(m.inexact_reason) << "\n";
  return kExitOk;
}

int verify(const Invocation& invocation, const std::string& step_dir) {
  const Terminal& terminal = invocation.terminal;
  const auto found = verify_checkpoint(step_dir);
  if (!found.ok()) return report(terminal, found.error());
  const int status = found->problems.empty() ? kExitOk : kExitFailed;
  if (invocation.json()) {
    print_json(terminal, {{"path", step_dir},
                          {"bytes", found->bytes},
                          {"ranges", found->ranges},
                          {"problems", found->problems}});
    return status;
  }
  for (const std::string& problem : found->problems) {
    terminal.err << "hpctl: " << printable(problem) << "\n";
  }
  terminal.out << printable(step_dir) << ": "
               << (status == kExitOk
                       ? "undamaged, "
                       : "DAMAGED (" + std::to_string(found->problems.size()) + " problems), ")
               << found->bytes << " bytes in " << found->ranges << " ranges compared\n";
  return status;
}

int digest(const Invocation& invocation, const std::string& step_dir) {
  const Terminal& terminal = invocation.terminal;
  const auto found = digest_checkpoint(step_dir);
  if (!found.ok()) return report(terminal, found.error());
  if (invocation.json()) return print_json(terminal, {{"path", step_dir}, {"digest", *found}});
  terminal.out << *found << "\n";
  return kExitOk;
}

int print_diff_json(const Terminal& terminal, const DiffReport& found) {
  nlohmann::ordered_json differences = nlohmann::ordered_json::array();
  for (const TensorDifference& d : found.differences) {
    differences.push_back({{"name", d.name},
                           {"what", d.what},
                           {"numel", d.numel},
                           {"differing", d.differing},
                           {"first", d.first},
                           {"max_abs", d.max_abs}});
  }
  return print_json(terminal, {{"same", found.same()},
                               {"same_position", found.same_position},
                               {"tensors", found.tensors},
                               {"differences", differences}});
}

// Differences are small: a count of thousands would show them as 0.
std::string three_digits(double value) {
  std::ostringstream text;
  text << std::setprecision(3) << value;
  return text.str();
}

int diff(const Invocation& invocation, const std::string& first, const std::string& second) {
  const Terminal& terminal = invocation.terminal;
  const auto found = diff_checkpoints(first, second);
  if (!found.ok()) return report(terminal, found.error());
  const int status = found->same() ? kExitOk : kExitFailed;
  if (invocation.json()) {
    print_diff_json(terminal, *found);
    return status;
  }
  if (found->same()) terminal.out << "same: " << found->tensors << " tensors, bit for bit\n";
  if (!found->same_position) terminal.out << "step, sample cursor or skip list differ\n";
  if (found->differences.empty()) return status;
  Table table({"TENSOR", "WHAT", "ELEMENTS", "DIFFERING", "FIRST", "LARGEST"});
  for (const TensorDifference& d : found->differences) {
    table.add({printable(d.name), d.what, std::to_string(d.numel), std::to_string(d.differing),
               std::to_string(d.first), three_digits(d.max_abs)});
  }
  table.print(terminal);
  return status;
}

Result<LedgerReport> prove(const std::string& ledger_dir, const Place& place) {
  if (!place.job) return verify_ledger(ledger_dir, place.directory);
  HP_TRY_ASSIGN(const auto chain, chain_of_job(place.directory, *place.job));
  return verify_ledger(ledger_dir, place.directory, chain);
}

int ledger(const Invocation& invocation, const Place& place) {
  const Terminal& terminal = invocation.terminal;
  const auto& words = invocation.arguments;
  const auto found = prove(words.size() > 2 ? words[2] : place.directory + "/ledger", place);
  if (!found.ok()) return report(terminal, found.error());
  const int status = found->problems.empty() ? kExitOk : kExitFailed;
  if (invocation.json()) {
    print_json(terminal, {{"step", found->step},
                          {"cursor", found->cursor},
                          {"generations", found->generations},
                          {"entries", found->entries},
                          {"undone", found->undone},
                          {"problems", found->problems}});
    return status;
  }
  for (const std::string& problem : found->problems) {
    terminal.err << "hpctl: " << printable(problem) << "\n";
  }
  if (status != kExitOk) return status;
  terminal.out << "every sample below " << found->cursor << " (step " << found->step
               << ") counted exactly once: " << found->generations << " generations, "
               << found->entries << " ledger lines; " << found->undone
               << " lines of steps that were rolled back\n";
  return status;
}

// What is wrong with the arguments, or "".
std::string usage_problem(const Invocation& invocation) {
  const std::string& what = invocation.arguments[0];
  const bool is_rm = what == "rm";
  if (invocation.has("--merge") && what != "export") return what + " takes no --merge";
  if (invocation.has("--dtype") && what != "export") return what + " takes no --dtype";
  if (invocation.has("--chain") && !is_rm && what != "adopt") return what + " takes no --chain";
  if (invocation.has("--yes") && !is_rm) return what + " takes no --yes";
  if (invocation.has("--take-directory") && !is_rm && what != "adopt") {
    return what + " takes no --take-directory";
  }
  const size_t directories = invocation.arguments.size() - 1;
  const bool two = what == "diff" || what == "export" || what == "import";
  if (is_rm || (what == "ledger" && directories <= 2)) return "";
  if (two == (directories == 2) && directories <= 2) return "";
  return what + " takes " + (two ? "two directories" : "one directory");
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const std::string& what = invocation.arguments[0];
  if (const auto problem = usage_problem(invocation); !problem.empty()) {
    return report_usage(terminal, "checkpoint", problem);
  }
  if (what == "import") {
    return run_import(invocation, invocation.arguments[1], invocation.arguments[2]);
  }
  const auto place = find_place(invocation.arguments[1]);
  if (!place.ok()) return report(terminal, place.error());
  if (what == "ls") {
    return run_list(invocation, place->directory, place->job ? &place->view : nullptr);
  }
  if (what == "adopt") return run_adopt(invocation, place->directory);
  if (what == "rm") {
    return run_remove(invocation, place->directory,
                      {invocation.arguments.begin() + 2, invocation.arguments.end()});
  }
  if (what == "ledger") return ledger(invocation, *place);
  const auto step_dir = resolve(*place);
  if (!step_dir.ok()) return report(terminal, step_dir.error());
  if (what == "show") return show(invocation, *step_dir);
  if (what == "verify") return verify(invocation, *step_dir);
  if (what == "digest") return digest(invocation, *step_dir);
  if (what == "export") return run_export(invocation, *step_dir, invocation.arguments[2]);
  const auto second = find_place(invocation.arguments[2]);
  if (!second.ok()) return report(terminal, second.error());
  const auto second_step_dir = resolve(*second);
  if (!second_step_dir.ok()) return report(terminal, second_step_dir.error());
  return diff(invocation, *step_dir, *second_step_dir);
}

}  // namespace
}  // namespace checkpoint_parts

Verb checkpoint_verb() {
  return {"checkpoint",
          "ls|rm|adopt|show|verify|digest|diff|ledger|export|import DIR|JOB [DIR|STEP]",
          "look at checkpoints, remove, export and import them",
          checkpoint_parts::kHelp,
          2,
          SIZE_MAX,
          {Option{"--chain", nullptr, "N"}, Option{"--yes"}, Option{"--take-directory"},
           Option{"--dtype", nullptr, "TYPE"}, Option{"--merge"}},
          checkpoint_parts::run,
          {"ls", "rm", "adopt", "show", "verify", "digest", "diff", "ledger", "export", "import"}};
}

}  // namespace hpctl
