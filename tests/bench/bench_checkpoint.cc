// SPDX-License-Identifier: Apache-2.0
// How long do a save and a load take on this disk?
//
//   [HPCTL_BIN=DIR] bench_checkpoint [DIRECTORY] [RUNS]
//
// The state of debugmodel (74 MB) and of a model of 519 MB, saved by 4 threads as 4 ranks would,
// with every fsync, then loaded at 4 ranks (one contiguous read per range) and at 3 (resharded),
// verified and digested. Beside it the floor: the same bytes written with write() and fsync() only.
// The first load reads what was written past the page cache, the others what is in it when memory
// allows; "cold" ones come from the disk. What the disk can do is asked of fio, when it is
// installed, in every run beside ours: as many bytes by as many jobs with O_DIRECT and fsync, in
// pieces of 1 MiB, 8 at a time, and for writes also from huge pages, in pieces of 8 MiB, 2 at a
// time: the fastest that was found. And what training feels of it: with HPCTL_BIN, two ranks of
// hptrain save every 10 steps; the stall is what rank 0 waits at the boundaries between steps, per
// save and as a share of the time of all steps, and beside it the median step while a save is
// written in the background and when none is; the same of two ranks that have copies of their state
// at each other (recovery.snapshot, as by default), and of two replicas (no_shard), each of which
// has all of the state and writes half. Prints medians as a table, then one line of JSON.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/bench/figures.h"
#include "tests/bench/hptrain_rank.h"
#include "tests/support/program_output.h"
#include "trainer/arch/registry.h"
#include "trainer/checkpoint/commit.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/shard_writer.h"

namespace hpctl {
namespace {

using testing::median;

constexpr int32_t kWorld = 4;
constexpr int32_t kOtherWorld = 3;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void on_every_rank(int32_t world, const std::function<void(int32_t)>& work) {
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < world; ++rank) threads.emplace_back(work, rank);
  for (std::thread& thread : threads) thread.join();
}

template <typename T>
T must(Result<T> result) {
  if (!result.ok()) std::fprintf(stderr, "%s\n", result.error().message.c_str());
  HP_CHECK(result.ok());
  return std::move(result).value();
}

// One buffer as large as the largest range serves every range of a rank: what is measured does not
// depend on the values.
class State {
 public:
  State(std::string dir, const ModelSpec& model) : dir_(std::move(dir)) {
    manifest_.model = model;
    manifest_.world_size = kWorld;
    manifest_.data.seq_len = 1;
    manifest_.blocks = model_layout(model);
    int64_t largest = 0;
    for (const Block& block : manifest_.blocks) largest = std::max(largest, block.numel);
    values_.resize(static_cast<size_t>(largest));
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i * 2654435761U);
  }

  std::string step_dir() const { return dir_ + "/" + manifest_.ref().name(); }
  double megabytes() const {
    return static_cast<double>(parameter_count(manifest_.blocks)) * 12 / 1e6;
  }

  void save(uint64_t step) {
    manifest_.step = step;
    std::vector<Receipt> receipts(kWorld);
    on_every_rank(kWorld, [&](int32_t rank) {
      ShardJob job{dir_, manifest_.ref(), rank, kWorld, &manifest_.blocks, {}};
      for (const StateKind kind : kStateKinds) {
        for (size_t b = 0; b < manifest_.blocks.size(); ++b) {
          const ElementRange range = shard_range(manifest_.blocks[b].numel, rank, kWorld);
          job.parts.push_back({static_cast<int32_t>(b), kind, range,
                               std::span(values_).first(static_cast<size_t>(range.size()))});
        }
      }
      receipts[static_cast<size_t>(rank)] = must(write_shard(job));
    });
    must(commit_checkpoint(dir_, manifest_, receipts));
  }

  void load(int32_t world) {
    on_every_rank(world, [&](int32_t rank) {
      auto loader = must(CheckpointLoader::open(step_dir()));
      std::vector<float> values(values_.size());
      for (size_t b = 0; b < manifest_.blocks.size(); ++b) {
        const ElementRange range = shard_range(manifest_.blocks[b].numel, rank, world);
        for (const StateKind kind : kStateKinds) {
          must(loader.load_range(static_cast<int32_t>(b), kind, range,
                                 std::span(values).first(static_cast<size_t>(range.size()))));
        }
      }
    });
  }

  // The kernel forgets the pages of the newest save; they are on disk.
  void forget() const {
    for (const ShardFile& file : must(read_manifest(step_dir())).files) {
      const UniqueFd fd(::open((step_dir() + "/" + file.file).c_str(), O_RDONLY | O_CLOEXEC));
      HP_CHECK(fd.valid() && ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED) == 0);
    }
  }

  // The floor: as many bytes, as many files and threads, no checksum, no format.
  void write_plainly() {
    on_every_rank(kWorld, [&](int32_t rank) {
      const std::string path = dir_ + "/plain-" + std::to_string(rank);
      const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
      HP_CHECK(fd.valid());
      for (const Block& block : manifest_.blocks) {
        const auto size = static_cast<size_t>(shard_range(block.numel, rank, kWorld).size());
        const std::string_view bytes(reinterpret_cast<const char*>(values_.data()), size * 4);
        for (size_t kind = 0; kind < kStateKinds.size(); ++kind) {
          must(write_all(fd.get(), bytes, path));
        }
      }
      HP_CHECK(::fsync(fd.get()) == 0);
      HP_CHECK(::unlink(path.c_str()) == 0);
    });
  }

 private:
  std::string dir_;
  Manifest manifest_;
  std::vector<float> values_;
};

using Samples = std::map<std::string, std::vector<double>>;

// Adds the MB/s that fio reaches as `name`; what it wrote stays. Nothing without fio.
void ask_fio(const std::string& dir, double megabytes, const std::string& name,
             const std::string& what, const std::string& options, Samples& rates) {
  const ProgramOutput output = run_program(
      "GLIBC_TUNABLES=glibc.malloc.hugetlb=" + std::string(name == "fio_huge" ? "1" : "0") +
      " fio --name=hpctl --directory=" + dir + " --numjobs=" + std::to_string(kWorld) +
      " --size=" + std::to_string(static_cast<int64_t>(megabytes * 1e6) / kWorld) +
      " --rw=" + what + " " + options +
      " --direct=1 --ioengine=libaio --end_fsync=1 --group_reporting --output-format=json");
  if (output.status != 0) return;
  const auto document = nlohmann::json::parse(output.text);
  rates[name].push_back(document["jobs"][0][what]["bw_bytes"].get<double>() / 1e6);
}

void forget_fio(const std::string& dir) {
  for (int job = 0; job < kWorld; ++job) {
    must(remove_tree(dir + "/hpctl." + std::to_string(job) + ".0"));
  }
}

void ask_fio(const std::string& dir, double megabytes, Samples& rates) {
  if (run_program("command -v fio").status != 0) return;
  const char* huge = "--bs=8M --iodepth=2 --iomem_align=2M";
  const char* plain = "--bs=1M --iodepth=8";
  ask_fio(dir, megabytes, "fio_huge", "write", huge, rates);
  forget_fio(dir);
  ask_fio(dir, megabytes, "fio_write", "write", plain, rates);
  ask_fio(dir, megabytes, "fio_read", "read", plain, rates);
  forget_fio(dir);
}

nlohmann::json measure(const std::string& name, const ModelSpec& model, const std::string& dir,
                       int runs) {
  State state(dir, model);
  const double megabytes = state.megabytes();
  Samples times;
  Samples rates;
  const auto time = [&](const char* key, const std::function<void()>& work) {
    times[key].push_back(seconds_of(work));
  };
  for (int run = 0; run < runs; ++run) {
    time("floor", [&] { state.write_plainly(); });
    time("save", [&] { state.save(static_cast<uint64_t>(run) + 1); });
    time("load", [&] { state.load(kWorld); });
    time("reshard", [&] { state.load(kOtherWorld); });
    state.forget();
    time("cold", [&] { state.load(kWorld); });
    time("verify", [&] { HP_CHECK(must(verify_checkpoint(state.step_dir())).problems.empty()); });
    time("digest", [&] { must(digest_checkpoint(state.step_dir())); });
    must(remove_tree(state.step_dir()));
    ask_fio(dir, megabytes, rates);
  }
  nlohmann::json row = {{"model", name}, {"megabytes", megabytes}};
  std::printf("%-12s %6.0f MB", name.c_str(), megabytes);
  for (const char* key : {"floor", "save", "load", "cold", "reshard", "verify", "digest"}) {
    const double seconds = median(times[key]);
    row[key] = seconds;
    std::printf("  %s %.3f s (%.0f MB/s)", key, seconds, megabytes / seconds);
  }
  for (const auto& [key, values] : rates) {
    row[key] = median(values);
    const double ours = megabytes / median(times[key == "fio_read" ? "cold" : "save"]);
    std::printf("  %s %.0f MB/s (ours %.0f %%)", key.c_str(), median(values),
                100 * ours / median(values));
  }
  std::printf(rates.size() == 3 ? "\n" : "  (skipped: fio, as it is absent or failed)\n");
  return row;
}

// A save may still be written in so many steps behind its boundary.
constexpr int kStepsAfterSave = 3;
constexpr int kSaveEvery = 10;
constexpr int kSaves = 7;

// How two ranks share the state.
struct Sharing {
  const char* key;   // in a row of JSON; "" = the row itself has the figures
  const char* name;  // behind the model's
  Strategy strategy = Strategy::kFull;
  bool copies = false;  // at peers: each rank is all of a node
};
constexpr std::array kSharings = {
    Sharing{"", ""}, Sharing{"copies_at_peers", ", copies at peers", Strategy::kFull, true},
    Sharing{"no_shard", ", no_shard", Strategy::kNoShard}};

Workload training(const std::string& dir, const ModelSpec& model, const Sharing& sharing) {
  Workload w;
  w.job = 1;
  w.name = "bench";
  w.generation = 1;
  w.world_size = 2;
  w.workers_per_node = sharing.copies ? 1 : 2;
  w.rendezvous_dir = dir + "/rdzv";
  w.checkpoint_dir = dir + "/checkpoints";
  w.metrics_path = dir + "/metrics.jsonl";
  w.checkpoint.every_steps = kSaveEvery;
  w.checkpoint.every_minutes = 0;
  w.checkpoint.keep = 1;
  w.train.model = model;
  w.train.strategy = sharing.strategy;
  w.train.data.path = "/usr/share/common-licenses";
  w.train.data.seq_len = 128;
  w.train.batch.global = w.world_size;
  w.train.steps = kSaves * kSaveEvery + kStepsAfterSave + 1;
  w.train.precision = Precision::kFp32;
  return w;
}

// What the metrics of a run tell; printed as of `name`.
nlohmann::json read_stall(const std::string& metrics_path, const std::string& name) {
  std::vector<double> stalls;  // at the boundaries from one save to the next
  double stalls_ms = 0;
  double all_ms = 0;
  std::vector<double> writing;
  std::vector<double> quiet;
  std::ifstream metrics(metrics_path);
  for (std::string line; std::getline(metrics, line);) {
    const auto m = nlohmann::json::parse(line);
    const int step = m["step"];
    if (step <= kStepsAfterSave) continue;  // the first steps touch their memory for the first time
    const double save_ms = m["save_ms"];
    stalls_ms += save_ms;
    all_ms += save_ms + m["step_ms"].get<double>();
    if (step > kSaveEvery && step % kSaveEvery == 1) stalls.push_back(0);
    if (!stalls.empty()) stalls.back() += save_ms;
    const bool behind_save = step > kSaveEvery && (step - 1) % kSaveEvery < kStepsAfterSave;
    (behind_save ? writing : quiet).push_back(m["step_ms"]);
  }
  HP_CHECK(!stalls.empty());
  const double most_ms = *std::max_element(stalls.begin(), stalls.end());
  std::printf(
      "%-12s stall %.1f ms per save (most %.1f), %.2f %% of the time at a save every %d steps; "
      "step %.1f ms, while a save is written %.1f ms\n",
      name.c_str(), median(stalls), most_ms, 100 * stalls_ms / all_ms, kSaveEvery, median(quiet),
      median(writing));
  return {{"stall_ms", median(stalls)},
          {"stall_most_ms", most_ms},
          {"stall_share", stalls_ms / all_ms},
          {"step_ms", median(quiet)},
          {"step_ms_while_writing", median(writing)}};
}

void measure_stall(const std::string& dir, const ModelSpec& model, const Sharing& sharing,
                   nlohmann::json& row) {
  const char* bin = std::getenv("HPCTL_BIN");
  if (bin == nullptr) {
    std::printf("skipped: the stall of training, as HPCTL_BIN is not set\n");
    return;
  }
  Workload workload = training(dir, model, sharing);
  std::vector<pid_t> ranks;
  for (workload.rank = 0; workload.rank < workload.world_size; ++workload.rank) {
    ranks.push_back(start_rank(std::string(bin) + "/hptrain", dir, workload));
  }
  bool good = true;
  for (const pid_t pid : ranks) {
    int status = 0;
    good = ::waitpid(pid, &status, 0) == pid && status == 0 && good;
  }
  if (good) {
    const std::string name = row["model"].get<std::string>() + sharing.name;
    const nlohmann::json stall = read_stall(workload.metrics_path, name);
    if (sharing.key == std::string_view()) {
      row.update(stall);
    } else {
      row[sharing.key] = stall;
    }
  } else {
    const auto log = read_file(dir + "/rank-0.log");
    std::printf("skipped: the stall of training, as hptrain failed:\n%s\n",
                log.ok() ? log->c_str() : "");
  }
  must(remove_tree(workload.checkpoint_dir));
  must(remove_tree(workload.metrics_path));
  must(remove_tree(workload.rendezvous_dir));
}

int run(const std::string& parent, int runs) {
  std::string dir = parent + "/bench-checkpoint-XXXXXX";
  HP_CHECK(mkdtemp(dir.data()) != nullptr);
  nlohmann::json rows = nlohmann::json::array();
  rows.push_back(measure("debugmodel", *model_preset("debugmodel"), dir, runs));
  for (const Sharing& sharing : kSharings) {
    measure_stall(dir, *model_preset("debugmodel"), sharing, rows.back());
  }
  ModelSpec larger = *model_preset("debugmodel");
  larger.dim = 640;
  larger.layers = 8;
  larger.ffn = 1792;
  rows.push_back(measure("43M", larger, dir, runs));
  for (const Sharing& sharing : kSharings) measure_stall(dir, larger, sharing, rows.back());
  must(remove_tree(dir));
  std::printf(
      "%s\n",
      nlohmann::json{{"bench", "checkpoint"}, {"runs", runs}, {"rows", rows}}.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace hpctl

int main(int argc, char** argv) {
  return hpctl::run(argc > 1 ? argv[1] : "/tmp", argc > 2 ? std::max(1, std::atoi(argv[2])) : 5);
}
