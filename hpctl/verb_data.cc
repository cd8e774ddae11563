// SPDX-License-Identifier: Apache-2.0
// hpctl data: training data. show reads files only; prepare becomes hpdata (hpdata_main.cc tells
// why that is a program of its own).
#include <unistd.h>

#include <thread>

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/program_path.h"
#include "hpctl/verbs.h"
#include "trainer/data/indexed_dataset.h"
#include "trainer/data/prepared_note.h"

namespace hpctl {
namespace data_parts {
namespace {

constexpr const char* kHelp = R"(
Makes text into tokens that the trainer reads, in Megatron-LM's format: PREFIX.bin and PREFIX.idx.

  prepare  IN... are files or directories. Names ending in .jsonl, .ndjson or .json hold one JSON
           object per line, each a document; any other file is text, one document. All may be
           compressed: .gz, .xz, .zst. A run that was interrupted goes on when the same command is
           given again; the result is the same, byte for byte, whatever the number of workers
  show     what a dataset holds: hpctl data show PREFIX

Examples:
  hpctl data prepare corpus/*.jsonl.zst --tokenizer tokenizer.json --out data/corpus --append-eod
  hpctl data prepare book.txt --tokenizer byte --out data/book
  hpctl data prepare chats.jsonl --tokenizer tokenizer.json --format chat --chat-template chatml \
      --out data/chats
  hpctl data show data/corpus

Options of prepare:
  --tokenizer T   byte, or a model's tokenizer.json (BPE), vocab.json (with merges.txt) or
                  tokenizer.model (SentencePiece, tiktoken)
  --out PREFIX    what to write
  --format F      text, the default; sft: objects with prompt and completion; chat: with messages
                  (role, content). With sft and chat only answers are learnt (docs/data.md)
  --chat-template T  chat: chatml or llama3
  --json-key KEY  where an object has its text; default: text
  --workers N     threads; default: one per processor
  --append-eod    end every document with the tokenizer's end-of-text token
  --max-bad-lines N  leave out up to N JSON lines that cannot be used, and count them; default: 0

  --json  prepare: {"prefix", "documents", "tokens", "text_bytes", "empty", "vocabulary",
          "bad_lines"}; show: {"prefix", "type", "documents", "sequences", "tokens", "bytes",
          "fingerprint", "tokenizer", "vocabulary", "end_of_document", "bad_lines"}; with sft and
          chat both also "answer_tokens", show "format" and "chat_template"

Exit codes: 0 fine, 1 not found, damaged or refused, 2 wrong arguments, or a mistake in what is to
be prepared or in its tokenizer
)";

int show(const Invocation& invocation, const std::string& prefix) {
  const Terminal& terminal = invocation.terminal;
  const auto data = IndexedDataset::open(prefix);
  if (!data.ok()) return report(terminal, data.error());
  const auto note = read_prepared_note(prefix);
  if (!note.ok()) return report(terminal, note.error());
  const uint64_t bytes = data->tokens() * token_bytes(data->type());
  if (invocation.json()) {
    nlohmann::ordered_json document = {{"prefix", prefix},
                                       {"type", to_string(data->type())},
                                       {"documents", data->documents()},
                                       {"sequences", data->sequences()},
                                       {"tokens", data->tokens()},
                                       {"bytes", bytes},
                                       {"fingerprint", data->fingerprint()},
                                       {"tokenizer", nullptr},
                                       {"vocabulary", nullptr},
                                       {"end_of_document", nullptr},
                                       {"bad_lines", nullptr}};
    if (*note) {
      document["bad_lines"] = (*note)->bad_lines;
      document["tokenizer"] = (*note)->tokenizer;
      document["vocabulary"] = (*note)->vocabulary;
      if ((*note)->end_of_document >= 0) document["end_of_document"] = (*note)->end_of_document;
      if ((*note)->format != DataFormat::kText) {
        document["format"] = to_word((*note)->format);
        document["chat_template"] = to_word((*note)->chat_template);
        document["answer_tokens"] = (*note)->answer_tokens;
      }
    }
    terminal.out << json_text(document) << "\n";
    return kExitOk;
  }
  terminal.out << printable(prefix) << "\n"
               << "  documents    " << data->documents() << "\n"
               << "  tokens       " << data->tokens() << " of " << to_string(data->type()) << ", "
               << bytes << " bytes\n";
  if (*note) {
    terminal.out << "  tokenizer    " << printable((*note)->tokenizer) << ", "
                 << (*note)->vocabulary << " ids";
    if ((*note)->end_of_document >= 0) {
      terminal.out << ", documents end with " << (*note)->end_of_document;
    }
    terminal.out << "\n";
    if ((*note)->bad_lines > 0) {
      terminal.out << "  bad lines    " << (*note)->bad_lines << ", left out\n";
    }
    if ((*note)->format != DataFormat::kText) {
      terminal.out << "  format       " << to_word((*note)->format);
      if ((*note)->format == DataFormat::kChat) {
        terminal.out << ", " << to_word((*note)->chat_template);
      }
      terminal.out << "; " << (*note)->answer_tokens << " tokens of answers\n";
    }
  }
  terminal.out << "  fingerprint  " << data->fingerprint() << "\n";
  return kExitOk;
}

// Becomes hpdata; returns only when that is not possible.
int exec_hpdata(const Terminal& terminal, std::vector<std::string> words) {
  const auto program = sibling_program("hpdata");
  if (!program.ok()) return report(terminal, program.error());
  words.insert(words.begin(), *program);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  terminal.out.flush();
  ::execv(program->c_str(), arguments.data());
  return report(terminal, errno_error("cannot run " + *program));
}

// What is wrong with the options; "" = nothing.
std::string add_format(const Invocation& invocation, std::vector<std::string>& words) {
  DataFormat format = DataFormat::kText;
  ChatTemplate chat_template = ChatTemplate::kNone;
  if (invocation.has("--format")) {
    const auto known = from_word<DataFormat>(invocation.options.at("--format"));
    if (!known) return "--format is one of " + all_words<DataFormat>();
    format = *known;
  }
  if (invocation.has("--chat-template")) {
    const auto known = from_word<ChatTemplate>(invocation.options.at("--chat-template"));
    if (!known) return "--chat-template is one of " + all_words<ChatTemplate>();
    chat_template = *known;
  }
  const bool chat = format == DataFormat::kChat;
  if (chat != (chat_template != ChatTemplate::kNone)) {
    return chat ? "--format chat needs --chat-template chatml or llama3"
                : "--chat-template is for --format chat";
  }
  for (const char* text_only : {"--json-key", "--append-eod"}) {
    if (format != DataFormat::kText && invocation.has(text_only)) {
      return std::string(text_only) + " is for --format text";
    }
  }
  words.push_back(std::string("--format=") + to_word(format));
  words.push_back(std::string("--chat-template=") + to_word(chat_template));
  return "";
}

int prepare(const Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  for (const char* name : {"--tokenizer", "--out"}) {
    if (!invocation.has(name) || invocation.options.at(name).empty()) {
      return report_usage(terminal, "data", std::string("prepare needs ") + name);
    }
  }
  if (const std::string& out = invocation.options.at("--out"); out.back() == '/') {
    return report_usage(terminal, "data",
                        "--out: expected the beginning of file names, such as " + out +
                            "corpus, found the directory \"" + printable(out) + "\"");
  }
  const auto workers = number_option(invocation, "--workers", 1, 1024);
  if (!workers.ok()) return report_usage(terminal, "data", workers.error().message);
  const int64_t processors = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::string> words = {"prepare",
                                    "--tokenizer=" + invocation.options.at("--tokenizer"),
                                    "--out=" + invocation.options.at("--out"),
                                    "--workers=" + std::to_string(workers->value_or(processors))};
  if (const std::string problem = add_format(invocation, words); !problem.empty()) {
    return report_usage(terminal, "data", problem);
  }
  if (invocation.has("--json-key")) {
    words.push_back("--json-key=" + invocation.options.at("--json-key"));
  }
  const auto max_bad_lines = number_option(invocation, "--max-bad-lines", 0, 1'000'000'000);
  if (!max_bad_lines.ok()) return report_usage(terminal, "data", max_bad_lines.error().message);
  words.push_back("--max-bad-lines=" + std::to_string(max_bad_lines->value_or(0)));
  if (invocation.has("--append-eod")) words.emplace_back("--append-eod");
  if (invocation.json()) words.emplace_back("--json");
  words.emplace_back("--");
  words.insert(words.end(), invocation.arguments.begin() + 1, invocation.arguments.end());
  return exec_hpdata(terminal, std::move(words));
}

int run(Invocation& invocation) {
  if (invocation.arguments[0] == "prepare") return prepare(invocation);
  if (invocation.arguments.size() != 2 || invocation.options.size() > (invocation.json() ? 1 : 0)) {
    return report_usage(invocation.terminal, "data", "show takes one PREFIX and no option");
  }
  return show(invocation, invocation.arguments[1]);
}

}  // namespace
}  // namespace data_parts

Verb data_verb() {
  return {"data",
          "prepare IN... --tokenizer T --out PREFIX | show PREFIX",
          "make text into tokens, look at them",
          data_parts::kHelp,
          2,
          1'000'000,
          {Option{"--tokenizer", nullptr, "T"}, Option{"--out", nullptr, "PREFIX"},
           Option{"--format", nullptr, "F"}, Option{"--chat-template", nullptr, "T"},
           Option{"--json-key", nullptr, "KEY"}, Option{"--workers", nullptr, "N"},
           Option{"--max-bad-lines", nullptr, "N"}, Option{"--append-eod"}},
          data_parts::run,
          {"prepare", "show"}};
}

}  // namespace hpctl
