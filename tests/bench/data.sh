#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hpctl data prepare beside SentencePiece's own spm_encode: the same model and text, one thread
# each, MB of text per second of processor time (user + system), so that a busy machine does not
# decide.
# Ours also reads JSON and writes the dataset durably; spm_encode reads lines and writes numbers.
# A Hugging Face tokenizer.json is measured too where TOKENIZER_JSON names one.
#   tests/bench/data.sh BIN_DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-bench-data-XXXXXX")
trap 'rm -rf "$work"' EXIT

# Text of this repository, repeated in another order, as lines and as JSON lines of ten lines each.
python3 - "$work" <<'PYTHON'
import glob, json, random, sys
random.seed(1)
lines = []
for path in sorted(glob.glob("docs/**/*.md", recursive=True) + glob.glob("*/*/*.cc")):
    lines += [line.strip() for line in open(path, encoding="utf-8")]
lines = [line for line in lines if len(line) > 20]
size = 0
with open(sys.argv[1] + "/text", "w") as text, open(sys.argv[1] + "/text.jsonl", "w") as objects:
    while size < 8_000_000:
        part = random.sample(lines, 10)
        size += sum(len(line.encode()) + 1 for line in part)
        text.write("\n".join(part) + "\n")
        objects.write(json.dumps({"text": "\n".join(part)}) + "\n")
PYTHON
bytes=$(stat -c %s "$work/text")

spm_train --input="$work/text" --model_prefix="$work/m" --vocab_size=2000 --model_type=bpe \
  --byte_fallback --input_sentence_size=3000 --minloglevel=2 >/dev/null 2>&1

# Seconds of processor time of a command.
seconds() {
  TIMEFORMAT='%U %S'
  { time "$@" >/dev/null 2>&1; } 2>&1 | awk '{print $1 + $2}'
}
prepare() { # TOKENIZER
  rm -rf "$work"/out*
  seconds "$bin/hpdata" prepare --tokenizer="$1" --out="$work/out" -- "$work/text.jsonl"
}
encode() {
  seconds spm_encode --model="$work/m.model" --output_format=id --output="$work/ids" "$work/text"
}

row() { # NAME SECONDS...: the median
  local name=$1 median
  shift
  median=$(printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p")
  awk -v n="$name" -v s="$median" -v b="$bytes" \
    'BEGIN { printf "%-34s %8.2f s  %8.1f MB/s\n", n, s, b / s / 1e6 }'
  printf '{"bench":"data","name":"%s","cpu_seconds":%s,"bytes":%s}\n' "$name" "$median" "$bytes" \
    >>"$work/json"
}
theirs=() ours=() byte=() bpe=()
for _ in 1 2 3; do
  theirs+=("$(encode)")
  ours+=("$(prepare "$work/m.model")")
  byte+=("$(prepare byte)")
  [ -z "${TOKENIZER_JSON:-}" ] || bpe+=("$(prepare "$TOKENIZER_JSON")")
done
row "spm_encode" "${theirs[@]}"
row "hpctl data prepare, SentencePiece" "${ours[@]}"
[ ${#bpe[@]} -eq 0 ] || row "hpctl data prepare, tokenizer.json" "${bpe[@]}"
row "hpctl data prepare, byte" "${byte[@]}"
cat "$work/json"
