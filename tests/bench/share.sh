#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What part of the processor time of training steps is products of matrices and attention, and what
# the rest is, as perf samples two workers of one thread after their first seconds:
#   tests/bench/share.sh BUILD [PRECISION]   e.g. build/release; `tests/bench/run share` builds it
set -euo pipefail
build=$(realpath "$1")
precision=${2:-fp32}
command -v perf >/dev/null || { echo "share.sh: needs perf (package linux-perf)" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-share.XXXXXX")
trap 'rm -rf "$work"' EXIT

cat >"$work/hptrain" <<END
#!/bin/sh
exec perf record -q -e cpu-clock -F 499 -D 3000 -o "\$SAMPLES.\$\$" -- "$build/bin/hptrain" "\$@"
END
chmod +x "$work/hptrain"

# Of lines "share object symbol" the sums by kind.
sum_up() {
  awk '
    function kind_of(object, symbol) {
      if (object ~ /openblas|libblas|mkl|dnnl/)
        return symbol ~ /copy|beta/ ? "copies of operands" : "products"
      if (symbol ~ /amx_products/) return "products"
      if (symbol ~ /[Aa]ttention/) return "attention"
      if (symbol ~ /RowLoops/) return "norms, SwiGLU, loss"
      if (symbol ~ /OptimizerLoops/) return "optimizer"
      if (object ~ /libtorch|libc10/) return "LibTorch"
      return object ~ /kernel/ ? "the kernel" : "other"
    }
    { kind = kind_of($2, $0); share = $1 + 0 }
    { sum[kind] += share; total += share }
    END {
      for (kind in sum) printf "  %5.1f %%  %s\n", 100 * sum[kind] / total, kind | "sort -rn"
      close("sort -rn")
      useful = sum["products"] + sum["copies of operands"] + sum["attention"]
      printf "  %5.1f %%  products, their copies, and attention\n", 100 * useful / total
    }'
}

for shape in "128 32" "512 8" "1024 4" "128 1"; do
  read -r tokens sequences <<<"$shape"
  rm -f "$work"/samples.*
  steps=$((tokens * sequences < 4096 ? 192 : 12))
  SAMPLES=$work/samples HPCTL_BIN=$work \
    "$build/tests/bench_trainer" --once "$tokens" "$sequences" "$steps" "$precision"
  echo "$tokens tokens x $sequences of each worker:"
  for samples in "$work"/samples.*; do
    perf report -q -i "$samples" --no-children -g none --sort dso,symbol --stdio 2>/dev/null
  done | sed -n 's/^ *\([0-9.]*\)%/\1/p' | sum_up
done
