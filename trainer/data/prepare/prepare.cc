// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/prepare/prepare.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "trainer/data/indexed_format.h"
#include "trainer/data/prepare/inputs.h"
#include "trainer/data/prepare/part_encoder.h"
#include "trainer/data/prepare/part_store.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {
namespace {

constexpr auto kProgressEvery = std::chrono::milliseconds(200);

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The parts between the thread that cuts and those that encode. Bounded: at most two parts per
// worker are in memory.
class Pipeline {
 public:
  Pipeline(const std::vector<InputFile>& files, const PartStore& store, uint64_t raw_total,
           size_t token_width, uint64_t max_bad_lines)
      : files_(files), store_(store), token_width_(token_width), max_bad_lines_(max_bad_lines) {
    progress_.raw_total = raw_total;
  }

  void start(const Tokenizer& tokenizer, int workers, const LineForm& form) {
    limit_ = static_cast<size_t>(workers);
    for (int i = 0; i < workers; ++i) {
      threads_.emplace_back([this, &tokenizer, form] {
        PartEncoder encoder(tokenizer, form);
        while (auto job = take()) finish(*job, work(encoder, *job));
      });
    }
  }

  // False: something has failed. Calls `tick` while it waits for room.
  template <typename Tick>
  bool offer(uint64_t number, InputPart part, Tick&& tick) {
    std::unique_lock lock(mutex_);
    while (!failure_ && queue_.size() >= limit_) wait_and(lock, tick);
    if (failure_) return false;
    queue_.push_back(Job{number, std::move(part)});
    ready_.notify_one();
    return true;
  }

  void count_earlier(uint64_t number, const StoredPart& part) {
    const std::lock_guard lock(mutex_);
    count(number, part);
    progress_.resumed_bytes += part.place.raw_bytes;
  }

  // Waits for the workers; the failure of the lowest part, if any.
  template <typename Tick>
  Outcome drain(Tick&& tick) {
    {
      std::unique_lock lock(mutex_);
      while (!failure_ && (!queue_.empty() || busy_ > 0)) wait_and(lock, tick);
      closed_ = true;
      ready_.notify_all();
    }
    threads_.clear();  // joins
    return failure_ ? Outcome(failure_->second) : Outcome(Ok{});
  }

  PrepareProgress progress() {
    const std::lock_guard lock(mutex_);
    return progress_;
  }
  uint64_t empty() {
    const std::lock_guard lock(mutex_);
    return empty_;
  }
  uint64_t answer_tokens() {
    const std::lock_guard lock(mutex_);
    return answer_tokens_;
  }
  uint64_t bad_lines() {
    const std::lock_guard lock(mutex_);
    return bad_lines_;
  }
  std::string first_bad() {
    const std::lock_guard lock(mutex_);
    return first_bad_.second;
  }

 private:
  struct Job {
    uint64_t number = 0;
    InputPart part;
  };

  template <typename Tick>
  void wait_and(std::unique_lock<std::mutex>& lock, Tick&& tick) {
    changed_.wait_for(lock, kProgressEvery);
    const PrepareProgress now = progress_;
    lock.unlock();
    tick(now);
    lock.lock();
  }

  std::optional<Job> take() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || failure_ || !queue_.empty(); });
    if (failure_ || queue_.empty()) return std::nullopt;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    ++busy_;
    changed_.notify_all();
    return job;
  }

  Result<StoredPart> work(PartEncoder& encoder, const Job& job) const {
    HP_TRY_ASSIGN(const EncodedPart part, encoder.encode(files_[job.part.place.file], job.part));
    HP_TRY(store_.put(job.number, job.part.place, part));
    return record_of(job.part.place, part);
  }

  void finish(const Job& job, const Result<StoredPart>& done) {
    const std::lock_guard lock(mutex_);
    --busy_;
    if (done.ok()) {
      count(job.number, *done);
    } else {
      fail(job.number, done.error());
    }
    changed_.notify_all();
  }

  void fail(uint64_t number, const Error& error) {
    if (failure_ && failure_->first <= number) return;
    failure_.emplace(number, error);
    ready_.notify_all();
  }

  void count(uint64_t number, const StoredPart& part) {
    progress_.raw_bytes += part.place.raw_bytes;
    progress_.text_bytes += part.text_bytes;
    progress_.documents += part.documents;
    progress_.tokens += part.token_bytes / token_width_;
    empty_ += part.empty;
    answer_tokens_ += part.answer_tokens;
    if (part.bad_lines == 0) return;
    bad_lines_ += part.bad_lines;
    if (first_bad_.second.empty() || number < first_bad_.first) {
      first_bad_ = {number, part.first_bad};
    }
    if (bad_lines_ > max_bad_lines_) {
      fail(number, Error{ErrorCode::kInvalidArgument,
                         "more than " + std::to_string(max_bad_lines_) + " bad lines, such as " +
                             first_bad_.second + "; mend them, or give a larger --max-bad-lines"});
    }
  }

  const std::vector<InputFile>& files_;
  const PartStore& store_;
  size_t token_width_;
  uint64_t max_bad_lines_;
  size_t limit_ = 1;
  std::mutex mutex_;
  std::condition_variable ready_;    // for workers: a job, or the end
  std::condition_variable changed_;  // for the calling thread
  std::deque<Job> queue_;
  size_t busy_ = 0;
  bool closed_ = false;
  std::optional<std::pair<uint64_t, Error>> failure_;
  PrepareProgress progress_;
  uint64_t empty_ = 0;
  uint64_t answer_tokens_ = 0;
  uint64_t bad_lines_ = 0;
  std::pair<uint64_t, std::string> first_bad_;  // of the lowest part that is known to have one
  std::vector<std::jthread> threads_;           // last: joined before the rest goes
};

// The number of parts.
template <typename Tick>
Result<uint64_t> run_pipeline(Pipeline& pipeline, PartCutter& cutter, const PartStore& store,
                              Tick&& tick) {
  uint64_t number = 0;
  Result<uint64_t> result = uint64_t{0};
  for (;; ++number) {
    if (const auto earlier = store.found().find(number); earlier != store.found().end()) {
      const Outcome skipped = cutter.skip(earlier->second.place);
      if (!skipped.ok()) {
        result = skipped.error();
        break;
      }
      pipeline.count_earlier(number, earlier->second);
      continue;
    }
    auto part = cutter.next();
    if (!part.ok()) result = part.error();
    if (!part.ok() || !*part) break;
    if (!pipeline.offer(number, std::move(**part), tick)) break;
  }
  HP_TRY(pipeline.drain(tick));
  if (!result.ok()) return result;
  return number;
}

// The dataset is there. When the same run made it and was killed before it had cleaned up, this run
// does that; else it must not be overwritten.
Result<PrepareResult> finished_earlier(const PrepareOptions& options, const std::string& plan,
                                       size_t files) {
  const std::string directory = options.out + ".parts";
  const auto before = read_file(directory + "/plan.json", 1U << 30);
  HP_TRY_ASSIGN(const auto note, read_prepared_note(options.out));
  if (!before.ok() || *before != plan || !note) {
    return Error{ErrorCode::kAlreadyExists,
                 options.out + ".idx exists; remove the dataset, or choose another --out"};
  }
  HP_TRY(remove_tree(directory));
  return PrepareResult{.note = *note, .files = files};
}

// A turn of a conversation has its own end token; a completion always ends.
Result<LineForm> line_form(const PrepareOptions& options, const Tokenizer& tokenizer) {
  LineForm form{.format = options.format,
                .json_key = options.json_key,
                .leaves_bad_lines_out = options.max_bad_lines > 0};
  if (options.format == DataFormat::kChat) {
    HP_TRY_ASSIGN(form.chat, ChatForm::create(options.chat_template, tokenizer, options.tokenizer));
    return form;
  }
  if (!options.append_eod && options.format == DataFormat::kText) return form;
  form.end_of_document = tokenizer.end_of_document();
  if (form.end_of_document >= 0) return form;
  return Error{ErrorCode::kInvalidArgument,
               (options.append_eod ? "--append-eod: " : "format sft: ") + options.tokenizer +
                   " has no token that ends a document"};
}

// `empty`: what was there and counts for nothing.
std::string nothing_there(const PrepareOptions& options, uint64_t empty) {
  const std::string& input = options.inputs[0];
  if (options.format == DataFormat::kText) return "no text in " + input;
  const char* answer = options.format == DataFormat::kSft ? "a completion that is not empty"
                                                          : "a message of the assistant";
  return "nothing to learn in " + input + ": " +
         (empty == 0 ? std::string("it has no lines")
                     : "none of its " + std::to_string(empty) + " lines has " + answer);
}

}  // namespace

std::string preparation_plan(const PrepareOptions& options, const std::vector<InputFile>& files,
                             const std::string& tokenizer_hash) {
  nlohmann::ordered_json plan = {{"format", "hpctl.prepare.1"},
                                 {"tokenizer", base_name(options.tokenizer)},
                                 {"tokenizer_hash", tokenizer_hash},
                                 {"json_key", options.json_key},
                                 {"append_eod", options.append_eod},
                                 {"part_bytes", options.part_bytes},
                                 {"inputs", nlohmann::ordered_json::array()}};
  if (options.format != DataFormat::kText) {
    plan["data_format"] = to_word(options.format);
    plan["chat_template"] = to_word(options.chat_template);
  }
  for (const InputFile& file : files) {
    plan["inputs"].push_back(
        {{"path", file.path}, {"bytes", file.bytes}, {"mtime", file.mtime_ns}});
  }
  return json_text(plan, {.indent = 1}) + "\n";
}

Result<PrepareResult> prepare_data(const PrepareOptions& options,
                                   const std::function<void(const PrepareProgress&)>& on_progress) {
  PrepareResult result;
  PreparedNote& note = result.note;
  HP_TRY_ASSIGN(const auto tokenizer, load_tokenizer(options.tokenizer, &note.tokenizer_hash));
  HP_TRY_ASSIGN(const LineForm form, line_form(options, *tokenizer));
  HP_TRY_ASSIGN(const std::vector<InputFile> files, find_inputs(options.inputs));
  const std::string plan = preparation_plan(options, files, note.tokenizer_hash);
  HP_TRY_ASSIGN(const bool finished, path_exists(options.out + ".idx"));
  if (finished) return finished_earlier(options, plan, files.size());
  HP_TRY_ASSIGN(PartStore store, PartStore::open(options.out + ".parts", plan));
  uint64_t raw_total = 0;
  for (const InputFile& file : files) raw_total += file.bytes;
  const TokenType type = token_type_for_vocabulary(tokenizer->vocabulary());
  Pipeline pipeline(files, store, raw_total, token_bytes(type), options.max_bad_lines);
  pipeline.start(*tokenizer, options.workers, form);
  PartCutter cutter(files, options.part_bytes);
  HP_TRY_ASSIGN(const uint64_t parts, run_pipeline(pipeline, cutter, store, on_progress));
  const PrepareProgress done = pipeline.progress();
  on_progress(done);
  if (done.tokens == 0) {
    return Error{ErrorCode::kInvalidArgument, nothing_there(options, pipeline.empty())};
  }
  note.tokenizer = base_name(options.tokenizer);
  note.vocabulary = tokenizer->vocabulary();
  note.end_of_document = form.end_of_document;
  note.documents = done.documents;
  note.tokens = done.tokens;
  note.text_bytes = done.text_bytes;
  note.format = options.format;
  note.chat_template = options.chat_template;
  note.answer_tokens = pipeline.answer_tokens();
  note.bad_lines = pipeline.bad_lines();
  result.first_bad = pipeline.first_bad();
  result.empty = pipeline.empty();
  result.files = files.size();
  HP_TRY(
      store.join(parts, type, options.out, [&] { return write_prepared_note(options.out, note); }));
  HP_TRY(store.remove());
  return result;
}

}  // namespace hpctl
