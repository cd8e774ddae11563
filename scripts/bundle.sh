#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A tarball of the programs with the libraries they need, for machines whose system is older than
# the build's: unpack it anywhere, all nodes at the same path, and call DIR/bin/hpctl.
#
#   scripts/bundle.sh [PRESET] [OUTPUT.tar.gz] [PROGRAM...]
#   (release, build/PRESET/hpctl-bundle.tar.gz, all programs that are built)
#
#   bin/        what to call: picks the way to run the program of the same name in libexec/
#   libexec/    the programs, the trainer's engine; they find lib/ by a relative RPATH
#   lib/        their libraries; lib/glibc/ the C library with its loader, used only where the
#               machine's own is older than the build's
#   share/hpctl data files, the unit; src/ the sources of hpslurm and the SPANK plugin, which are
#               compiled against the cluster's own Slurm (deploy/hyperpod/install_hpctl.sh)
#   share/man, share/completion  manual pages, scripts for shells
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
output=$(realpath -m "${2:-build/$preset/hpctl-bundle.tar.gz}")
bin=build/$preset/bin
wanted=("${@:3}")
[ $# -gt 2 ] || wanted=(hpctl hpdata hpcontroller hpcontroller-step hpagent hpagent-shim hpstacks
  hptrain)
scripts/install_packages.sh --for programs
scripts/install_packages.sh --for packages

stage=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-bundle-XXXXXX")
trap 'rm -rf "$stage"' EXIT
root=$stage/hpctl
mkdir -p "$root"/{bin,libexec,lib/glibc,share/hpctl}

programs=()
for program in "${wanted[@]}"; do
  if [ -x "$bin/$program" ]; then
    programs+=("$program")
  else
    echo "bundle.sh: $bin/$program is not built; the bundle is without it" >&2
  fi
done
[ -x "$bin/hpctl" ] && [ -x "$bin/hpagent" ] && [ -x "$bin/hpcontroller" ] || {
  echo "bundle.sh: build first: scripts/build.sh $preset" >&2
  exit 1
}

# What belongs to the C library and must come from one place as a whole.
is_glibc() {
  case $1 in
    ld-linux-*.so.* | libc.so.* | libm.so.* | libmvec.so.* | libdl.so.* | libpthread.so.* | \
      librt.so.* | libresolv.so.* | libutil.so.* | libanl.so.* | libnss_*.so.*) return 0 ;;
  esac
  return 1
}

glibc_directory=
is_static() { ! readelf -lW "$1" | grep -q ' INTERP '; }

add_libexec() {  # add_libexec NAME: with every library it needs
  local path name
  strip -o "$root/libexec/$1" "$bin/$1"
  patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$root/libexec/$1"
  while read -r path; do
    name=$(basename "$path")
    if is_glibc "$name"; then
      [ "$name" != libc.so.6 ] || glibc_directory=$(dirname "$(realpath "$path")")
      cp -Lu "$path" "$root/lib/glibc/$name"
    elif [ ! -e "$root/lib/$name" ]; then
      cp -L "$path" "$root/lib/$name"
      chmod u+w "$root/lib/$name"
      patchelf --force-rpath --set-rpath '$ORIGIN' "$root/lib/$name"
    fi
  done < <(ldd "$bin/$1" | awk '/=> \// {print $3} /^\t\// {print $1}')
}

for program in "${programs[@]}"; do
  if is_static "$bin/$program"; then  # Slurm executes the shim by descriptor, in any root
    strip -o "$root/bin/$program" "$bin/$program"
    continue
  fi
  add_libexec "$program"
  [ "$program" = hptrain ] || continue
  add_libexec libhptrain_engine.so  # which it opens beside what is called (decision 0203)
  ln -s ../libexec/libhptrain_engine.so "$root/bin/"
done
# Names of users and hosts are looked up by libraries that nobody links.
for name in libnss_files.so.2 libnss_dns.so.2 libresolv.so.2; do
  cp -Lu "$glibc_directory/$name" "$root/lib/glibc/" 2>/dev/null || true
done
cp deploy/environment.json deploy/instances.json deploy/systemd/hpctl-tmpfiles.conf \
  deploy/systemd/hpcontroller.service LICENSE "$root/share/hpctl/"
cp third_party/uplot/LICENSE "$root/share/hpctl/LICENSE.uplot"
for texts in man completion; do  # of a build that is whole
  [ ! -d "build/$preset/share/$texts" ] || cp -r "build/$preset/share/$texts" "$root/share/"
done

# The plugin's and hpslurm's sources, with what they need of ours, found by their #include lines,
# and the headers of nlohmann-json.
src=$root/share/hpctl/src
plugin_sources=(slurm-plugins/auto_resume/*.[ch] slurm-plugins/auto_resume/*.lds)
hpslurm_sources=(slurm-plugins/hpslurm/*.cc)
while true; do
  mapfile -t headers < <(c++ -std=c++20 -I. -MM -MG "${hpslurm_sources[@]}" | sed 's/\\$//' |
    tr ' ' '\n' | grep -E '^(common|slurm-plugins)/.*\.h$' | sort -u)
  mapfile -t sources < <({ printf '%s\n' "${hpslurm_sources[@]}"
    for header in "${headers[@]}"; do
      [ ! -e "${header%.h}.cc" ] || echo "${header%.h}.cc"
    done; } | sort -u)
  [ ${#sources[@]} -gt ${#hpslurm_sources[@]} ] || break
  hpslurm_sources=("${sources[@]}")
done
mkdir -p "$src/include"
cp --parents "${plugin_sources[@]}" "${hpslurm_sources[@]}" "${headers[@]}" "$src"
json=$(echo '#include <nlohmann/json.hpp>' | c++ -x c++ -std=c++20 -M - | tr ' ' '\n' |
  sed -n 's|/nlohmann/json.hpp$||p' | head -n 1)
cp -Lr "$json/nlohmann" "$src/include/"

version=$(getconf GNU_LIBC_VERSION | awk '{print $2}')
for program in "${programs[@]}"; do
  [ ! -e "$root/bin/$program" ] || continue
  cat >"$root/bin/$program" <<EOF
#!/bin/sh
# Runs ../libexec/$program, built with glibc $version; with the bundle's own glibc where this
# machine's is older.
self=\$(readlink -f "\$0")
root=\${self%/bin/*}
own=\$(getconf GNU_LIBC_VERSION 2>/dev/null)
own=\${own#* }
major=\${own%%.*}
minor=\${own#*.}
minor=\${minor%%.*}
if { [ "\${major:-0}" -gt ${version%%.*} ] || {
  [ "\${major:-0}" -eq ${version%%.*} ] && [ "\${minor:-0}" -ge ${version#*.} ]
}; } 2>/dev/null; then
  exec "\$root/libexec/$program" "\$@"
fi
exec "\$root/lib/glibc/ld-linux-x86-64.so.2" --library-path "\$root/lib/glibc:\$root/lib" \\
  "\$root/libexec/$program" "\$@"
EOF
  chmod +x "$root/bin/$program"
done

# Its version is that of the engine with LibTorch, which nothing else would miss here.
[ ! -e "$root/bin/hptrain" ] || "$root/bin/hptrain" --version >/dev/null || {
  echo "bundle.sh: hptrain does not run from the bundle (see above); none was made" >&2
  exit 1
}

mkdir -p "$(dirname "$output")"
tar -C "$stage" --owner=0 --group=0 -czf "$output.new" hpctl
mv "$output.new" "$output"
echo "$output: $(du -h "$output" | cut -f1), ${programs[*]}"
