#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of this directory on the Slurm of another Debian release, as on a cluster that is newer
# than the build machine: the programs come as the bundle of this machine's build, and
# install_hpctl.sh compiles hpslurm and the plugin there.
#
#   tests/slurm/in_release.sh [--root DIR] RELEASE [TEST...]
#   tests/slurm/in_release.sh trixie hpslurm_test slurm_job_test
#
#   RELEASE     of Debian: trixie (Slurm 24.11), forky (newer), ...
#   TEST        names of ctest, patterns as well; without any, all that run there
#   --root DIR  the release's system is made in DIR and stays, or is taken from there
#
# Needs root, mount namespaces, the package debootstrap, its mirror and build/release. Exit codes:
# of ctest; 77 = cannot run here (the reason is on stderr).
#
# Theory of operation. All happens in a mount namespace of its own, so no mount outlives it. The
# system has this repository under the same path, read-only; in place of build/release stand the
# installed bundle, the test programs (which take their libraries from it) and ctest's list.
set -euo pipefail

repo=$(realpath "$(dirname "$0")/../..")
. "$repo/scripts/release_root.sh"
usage() { sed -n '3,/^$/s/^# \{0,1\}//p' "$0" | sed '/^Theory/,$d' >&2; exit 2; }

build=$repo/build/release
packages=(slurmctld slurmd slurm-client munge libslurm-dev g++ cmake iproute2 procps jq)

arguments=("$@")
root=
if [ "${1:-}" = --root ]; then
  root=$(realpath -m "${2:?}")
  shift 2
fi
[ $# -gt 0 ] || usage
release=$1
shift

[ "$(id -u)" -eq 0 ] || skip "needs root: slurmd, network namespaces and a system of its own"
[ -x "$build/tests/hpslurm_test" ] || fail "build first: scripts/build.sh tests"
in_own_namespace "${arguments[@]}"

# In place of build/release.
mount_build() {
  mkdir -p "$root/hpctl-build"
  rm -rf "$root"/hpctl-build/*
  mount --bind "$root/hpctl-build" "$root$build"
}

install_programs() {
  (cd "$repo" && scripts/bundle.sh release "$root/hpctl-bundle.tar.gz")
  inside "$repo/deploy/hyperpod/install_hpctl.sh" --bundle /hpctl-bundle.tar.gz
  ln -sT /opt/hpctl/bin "$root$build/bin"
  ln -sT /opt/hpctl/lib "$root$build/lib"
}

install_tests() {
  local there=$root$build/tests program plugin
  mkdir -p "$there"/{plugins,slurm}
  cp "$build/tests/slurm/CTestTestfile.cmake" "$there/slurm/"
  for program in "$build"/tests/{hpslurm_test,slurm_*_test}; do
    strip -o "$there/$(basename "$program")" "$program"
    patchelf --force-rpath --set-rpath /opt/hpctl/lib "$there/$(basename "$program")"
  done
  for plugin in container other_auto_resume; do
    inside cc -std=gnu11 -O2 -fPIC -shared "$repo/tests/slurm/plugins/$plugin.c" \
      -o "$build/tests/plugins/spank_$plugin.so"
  done
  inside cc -std=gnu11 -O2 -fPIC -shared "$repo/tests/integration/slow_reads.c" \
    -o "$build/tests/libslow_reads.so" -ldl
}

make_directories "$root"
make_root
enter_root
mount_build
install_packages
install_programs
install_tests
say "$release: Slurm $(inside slurmctld -V), $(inside cc --version | head -n 1)"
tests=$(IFS='|'; echo "${*:-.*}")
# slurm_hyperpod_install builds a bundle; what it shows has been done above.
inside ctest --test-dir "$build/tests/slurm" --output-on-failure -R "^($tests)$" \
  -E '^slurm_hyperpod_install$'
