// SPDX-License-Identifier: Apache-2.0
// How long do a save and a load take on this disk?
//
//   bench_checkpoint [DIRECTORY] [RUNS]
//
// The state of debugmodel (74 MB) and of a model of 519 MB, saved by 4 threads as 4 ranks would,
// with every fsync, then loaded at 4 ranks (one contiguous read per range) and at 3 (resharded),
// verified and digested. Beside it the floor: the same bytes written with write() and fsync() only.
// Loads come from the page cache when memory allows, as they do after a restart on the same node;
// "cold" ones come from the disk. What the disk can do is asked of fio, when it is installed: as
// many bytes by as many jobs with O_DIRECT, in pieces of 1 MiB, 8 at a time.
// Prints medians as a table, then one line of JSON.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "tests/support/program_output.h"
#include "trainer/checkpoint/commit.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/shard_writer.h"

namespace hpctl {
namespace {

constexpr int32_t kWorld = 4;
constexpr int32_t kOtherWorld = 3;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
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
    manifest_.blocks = llama_layout(model);
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
      for (size_t b = 0; b < manifest_.blocks.size(); ++b) {
        const ElementRange range = shard_range(manifest_.blocks[b].numel, rank, kWorld);
        for (const StateKind kind : kStateKinds) {
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

// MB/s that fio reaches: "write", then "read" of what was written. Nothing without fio.
std::vector<std::pair<std::string, double>> ask_fio(const std::string& dir, double megabytes) {
  std::vector<std::pair<std::string, double>> found;
  if (run_program("command -v fio").status != 0) return found;
  for (const char* what : {"write", "read"}) {
    const ProgramOutput output =
        run_program("fio --name=hpctl --directory=" + dir + " --numjobs=" + std::to_string(kWorld) +
                    " --size=" + std::to_string(static_cast<int64_t>(megabytes * 1e6) / kWorld) +
                    " --rw=" + what +
                    " --bs=1M --direct=1 --ioengine=libaio --iodepth=8 --end_fsync=1"
                    " --group_reporting --output-format=json");
    if (output.status != 0) return found;
    const auto document = nlohmann::json::parse(output.text);
    found.emplace_back(what, document["jobs"][0][what]["bw_bytes"].get<double>() / 1e6);
  }
  must(remove_tree(dir + "/hpctl.0.0"));
  for (int job = 1; job < kWorld; ++job) {
    must(remove_tree(dir + "/hpctl." + std::to_string(job) + ".0"));
  }
  return found;
}

nlohmann::json measure(const std::string& name, const ModelSpec& model, const std::string& dir,
                       int runs) {
  State state(dir, model);
  std::vector<double> floor;
  std::vector<double> save;
  std::vector<double> load;
  std::vector<double> cold;
  std::vector<double> reshard;
  std::vector<double> verify;
  std::vector<double> digest;
  for (int run = 0; run < runs; ++run) {
    floor.push_back(seconds_of([&] { state.write_plainly(); }));
    save.push_back(seconds_of([&] { state.save(static_cast<uint64_t>(run) + 1); }));
    load.push_back(seconds_of([&] { state.load(kWorld); }));
    reshard.push_back(seconds_of([&] { state.load(kOtherWorld); }));
    state.forget();
    cold.push_back(seconds_of([&] { state.load(kWorld); }));
    verify.push_back(
        seconds_of([&] { HP_CHECK(must(verify_checkpoint(state.step_dir())).problems.empty()); }));
    digest.push_back(seconds_of([&] { must(digest_checkpoint(state.step_dir())); }));
    must(remove_tree(state.step_dir()));
  }
  const double megabytes = state.megabytes();
  nlohmann::json row = {{"model", name}, {"megabytes", megabytes}};
  std::printf("%-12s %6.0f MB", name.c_str(), megabytes);
  const auto column = [&](const char* key, const std::vector<double>& values) {
    row[key] = median(values);
    std::printf("  %s %.3f s (%.0f MB/s)", key, median(values), megabytes / median(values));
  };
  column("floor", floor);
  column("save", save);
  column("load", load);
  column("cold", cold);
  column("reshard", reshard);
  column("verify", verify);
  column("digest", digest);
  for (const auto& [what, rate] : ask_fio(dir, megabytes)) {
    row["fio_" + what] = rate;
    const double ours = megabytes / median(what == "write" ? save : cold);
    std::printf("  fio %s %.0f MB/s (ours %.0f %%)", what.c_str(), rate, 100 * ours / rate);
  }
  std::printf("\n");
  return row;
}

int run(const std::string& parent, int runs) {
  std::string dir = parent + "/bench-checkpoint-XXXXXX";
  HP_CHECK(mkdtemp(dir.data()) != nullptr);
  nlohmann::json rows = nlohmann::json::array();
  rows.push_back(measure("debugmodel", *model_preset("debugmodel"), dir, runs));
  ModelSpec larger = *model_preset("debugmodel");
  larger.dim = 640;
  larger.layers = 8;
  larger.ffn = 1792;
  rows.push_back(measure("43M", larger, dir, runs));
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
