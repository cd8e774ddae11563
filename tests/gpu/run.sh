#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds hptrain against the LibTorch inside this machine's Python, then on its GPU holds each
# kernel against its reference (kernels_check.cc), runs the checks of measure.py, times operations
# that were joined beside those that they replaced (operations_bench.cc), runs the benchmark, and
# prints a roofline of one step. One command, on any machine with an NVIDIA GPU:
#
#   tests/gpu/run.sh [--only PART] [--points NAME,...] [--no-peers] [--resume DIR] [--out DIR]
#                    [--build DIR] [--python PROGRAM] [--cpu]
#   tests/gpu/run.sh --pack
#
#   --only PART     build, checks, operations, benchmark or roofline, after the build
#   --points NAMES  of the benchmark and the roofline (points.py; a wrong name lists them)
#   --no-peers      hptrain alone, without PyTorch beside it
#   --resume DIR    goes on from the DIR of an earlier --out: uses its programs where they were
#                   built for the same torch, keeps its rows, and tries again what failed or had no
#                   time
#   --out DIR       for results; by default that of --resume, or build/gpu/results
#   --build DIR     for the build and what is only needed meanwhile, build/gpu by default
#   --cpu           the same steps with a small model and without a GPU, also with an older torch,
#                   to try the script itself
#   --pack          puts the headers and the library of this machine that a build needs into .dep,
#                   which git ignores and a build elsewhere uses: carry it to a machine without them
#
# Each part tells beforehand about how long it takes. Each but the build ends after eight minutes at
# most, and with --only after ten, the build included; what it had no time for is a row that says
# so, for --resume. DIR has results.json and results.md, written after each row, failed.log with the
# logs of runs that failed, and programs.tar.gz for --resume: all of it is small. A check that
# fails, or a run that hangs (180 s on a GPU), keeps no other from being made.
#
# Needs a C++20 compiler, CMake 3.18, Ninja or make, headers and library of OpenSSL's libcrypto and
# nlohmann json's headers, and a Python with torch 2.4 or newer, of either C++ ABI; no CUDA toolkit,
# no protobuf, no gRPC, no Gloo. Packages that are unpacked elsewhere: CPATH names the directories
# of their headers, CMAKE_PREFIX_PATH the prefix of their libraries. Exit codes: 0 all checks
# passed, 1 a check failed, 2 something is missing or does not build, or wrong usage.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

usage() {
  echo "usage: tests/gpu/run.sh [--only build|checks|operations|benchmark|roofline]" >&2
  echo "                        [--points NAME,...] [--no-peers] [--resume DIR] [--out DIR]" >&2
  echo "                        [--build DIR] [--python PROGRAM] [--cpu]" >&2
  echo "       tests/gpu/run.sh --pack" >&2
  exit 2
}
say() { echo "tests/gpu/run.sh: $*" >&2; }

device=cuda
build=$root/build/gpu
out=
only=
points=
peers=true
resume=
python=python3
pack=false
while [ $# -gt 0 ]; do
  case $1 in
    --cpu) device=cpu ;;
    --pack) pack=true ;;
    --no-peers) peers=false ;;
    --only | --out | --build | --python | --points | --resume)
      [ $# -ge 2 ] || usage
      declare "${1#--}=$2"
      shift
      ;;
    *) usage ;;
  esac
  shift
done
out=$(realpath -m "${out:-${resume:-$build/results}}")
case $only in
  "" | build | checks | operations | benchmark | roofline) ;;
  *) usage ;;
esac
[ -z "$resume" ] || [ -d "$resume" ] || { say "--resume: there is no directory $resume"; exit 2; }

compiler=${CXX:-c++}
dep=$root/.dep
compiles() { echo "#include <$1>" | "$compiler" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; }
links_crypto() {
  echo 'extern "C" void* EVP_sha256(); int main() { return EVP_sha256() == nullptr; }' |
    "$compiler" -x c++ - -lcrypto -ldl -pthread -o /dev/null 2>/dev/null
}

# Copies each directory NAME of headers that the compiler finds under any of its places.
pack_headers() {
  local name=$1 header=$2 place
  "$compiler" -std=c++20 -M -x c++ - <<<"#include <$header>" | tr -s ' \\' '\n' |
    sed -n "s|^\(.*/$name\)/.*|\1|p" | sort -u |
    while read -r place; do cp -rL "$place" "$dep/include/"; done
}
if $pack; then
  library=$("$compiler" -print-file-name=libcrypto.a)
  [ "$library" != libcrypto.a ] || { say "--pack: missing: libcrypto.a (libssl-dev)"; exit 2; }
  compiles openssl/evp.h || { say "--pack: missing: OpenSSL's headers (libssl-dev)"; exit 2; }
  compiles nlohmann/json.hpp ||
    { say "--pack: missing: nlohmann json (nlohmann-json3-dev)"; exit 2; }
  rm -rf "$dep"
  mkdir -p "$dep/include" "$dep/lib"
  pack_headers openssl openssl/evp.h
  pack_headers nlohmann nlohmann/json.hpp
  cp -L "$library" "$dep/lib/"
  say "$(du -sh "$dep" | cut -f1) in $dep"
  exit 0
fi
if [ -d "$dep" ]; then
  export CPATH=$dep/include${CPATH:+:$CPATH} OPENSSL_ROOT_DIR=$dep
  export LIBRARY_PATH=$dep/lib${LIBRARY_PATH:+:$LIBRARY_PATH}
fi

complaint=$(mktemp)
trap 'rm -f "$complaint"' EXIT
missing=()
need() { missing+=("$*"); }
complained() { sed -n '$s/^/: /p' "$complaint"; }
# Prints its version, whether that is new enough, its C++ ABI (1 = C++11's), whether it sees a GPU,
# and .../torch/share/cmake.
ask_torch() {
  "$python" - 2>"$complaint" <<'EOF'
import torch
recent = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)
print(torch.__version__, "new" if recent else "old", int(torch._C._GLIBCXX_USE_CXX11_ABI),
      torch.cuda.is_available(), torch.utils.cmake_prefix_path)
EOF
}
end_if_missing() {
  [ ${#missing[@]} -gt 0 ] || return 0
  printf 'tests/gpu/run.sh: missing: %s\n' "${missing[@]}" >&2
  exit 2
}

if read -r version age abi sees_gpu torch_cmake < <(ask_torch); then
  if [ "$device" = cuda ]; then
    [ "$age" = new ] || need "torch 2.4 or newer ($python has $version)"
    [ "$sees_gpu" = True ] ||
      need "an NVIDIA GPU that torch sees (torch.cuda.is_available() is False;" \
        "see nvidia-smi)$(complained)"
  fi
else
  need "torch in $python (--python PROGRAM names another)$(complained)"
fi

# What programs are built for: they start with no other torch.
built_for="torch ${version:-} abi ${abi:-} $(uname -m)"
programs=$build
resumed=false
if [ -n "$resume" ] && [ -f "$resume/programs.tar.gz" ]; then
  rm -rf "$build/resumed"
  mkdir -p "$build/resumed"
  tar -xzf "$resume/programs.tar.gz" -C "$build/resumed"
  if [ "$(cat "$build/resumed/built_for")" = "$built_for" ]; then
    programs=$build/resumed
    resumed=true
    # They were linked where torch may have had another place.
    export LD_LIBRARY_PATH=${torch_cmake%/share/cmake}/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    say "uses the programs of $resume"
  else
    say "builds: the programs of $resume are for $(cat "$build/resumed/built_for"), not $built_for"
  fi
fi

generator=Ninja
look_for_tools() {
  if command -v "$compiler" >/dev/null; then
    compiles concepts || need "a compiler of C++20 ($compiler is not one; set CXX)"
    compiles openssl/evp.h ||
      need "OpenSSL's headers (libssl-dev, or .dep: tests/gpu/run.sh --pack makes it elsewhere)"
    links_crypto || need "OpenSSL's libcrypto (libssl-dev, or .dep)"
    compiles nlohmann/json.hpp ||
      need "nlohmann json (nlohmann-json3-dev, or .dep; CPATH may name its place)"
  else
    need "a C++20 compiler ($compiler is not there; set CXX)"
  fi
  local found
  found=$({ cmake --version 2>/dev/null || true; } | sed -n 's/^cmake version //p')
  [ "$(printf '%s\n' 3.18 "${found:-0}" | sort -V | head -n 1)" = 3.18 ] ||
    need "cmake 3.18 or newer (${found:-none} is there; pip install cmake)"
  command -v ninja >/dev/null || generator="Unix Makefiles"
  [ "$generator" = Ninja ] || command -v make >/dev/null || need "ninja or make"
}
$resumed || look_for_tools
end_if_missing
[ "$device" = cpu ] || "$python" "$root/tests/gpu/runtime_names.py" >&2 || true

build_programs() {
  # Wheels up to 2.6 are of the old C++ ABI, mostly; what we link beside LibTorch is C.
  local flags="-O2 -g1"
  [ "$abi" = 1 ] || flags+=" -D_GLIBCXX_USE_CXX11_ABI=0"
  # A wheel's LibTorch has a Gloo inside, and another one beside it would clash. Several ranks are
  # tried on GPUs only. A compiler that is newer than ours may warn of what ours does not.
  # Sources in batches are less work (seconds of a processor), one by one they keep more processors
  # busy.
  local jobs batches=ON work_s=240
  jobs=$(nproc)
  [ "$jobs" -le 4 ] || { batches=OFF work_s=900; }
  cmake -S "$root" -B "$build" -G "$generator" -DHPCTL_TRAINER_ONLY=ON -DCMAKE_BUILD_TYPE=Release \
    "-DCMAKE_CXX_FLAGS_RELEASE=$flags" "-DCMAKE_PREFIX_PATH=${torch_cmake%/share/cmake}" \
    -DHPCTL_UNITY=$batches -DHPCTL_WARNINGS_ARE_ERRORS=OFF -DGLOO_INCLUDE_DIR= -DGLOO_LIBRARY= ||
    exit 2
  say "build: about $((20 + work_s / jobs)) s on $jobs processors"
  cmake --build "$build" --parallel "$jobs" --target hptrain hptrain_engine point_plan || exit 2
  # Where this does not build, its check fails, and the others are made.
  cmake --build "$build" --parallel "$jobs" --target kernels_check operations_bench \
    stub_cuda stub_nvrtc || true
  say "build: $((SECONDS - begun)) s"
}
# Without what a debugger reads, for --resume.
keep_programs() {
  local kept=$build/kept file
  rm -rf "$kept"
  mkdir -p "$kept"
  echo "$built_for" >"$kept/built_for"
  for file in bin/hptrain bin/libhptrain_engine.so tests/point_plan tests/kernels_check \
    tests/operations_bench tests/stub_cuda; do
    [ -e "$build/$file" ] || continue
    mkdir -p "$kept/$(dirname "$file")"
    cp -r "$build/$file" "$kept/$(dirname "$file")/"
  done
  find "$kept" -type f \( -name '*.so*' -o -perm -u+x \) -exec strip --strip-debug {} +
  tar -czf "$out/programs.tar.gz.new" -C "$kept" .
  mv "$out/programs.tar.gz.new" "$out/programs.tar.gz"
}

mkdir -p "$out"
begun=$SECONDS
$resumed || build_programs
"$programs/bin/hptrain" --version || exit 2
if ! $resumed; then
  keep_programs
elif ! [ "$out" -ef "$resume" ]; then
  cp "$resume/programs.tar.gz" "$out/"
fi
[ "$only" != build ] || exit 0
arguments=(--hptrain "$programs/bin/hptrain" --kernels-check "$programs/tests/kernels_check"
           --operations-bench "$programs/tests/operations_bench"
           --point-plan "$programs/tests/point_plan" --device "$device" --out "$out"
           --scratch "$build/scratch")
[ -z "$only" ] || arguments+=(--only "$only" --spent "$SECONDS")
[ -z "$points" ] || arguments+=(--points "$points")
[ -z "$resume" ] || arguments+=(--resume "$resume")
$peers || arguments+=(--no-peers)
"$python" "$root/tests/gpu/measure.py" "${arguments[@]}"
