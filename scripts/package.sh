#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the programs of a preset and makes its Debian packages (docs/install.md):
#   scripts/package.sh [PRESET] [DIRECTORY]
#   (release, build/PRESET/packages)
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
output=$(realpath -m "${2:-build/$preset/packages}")
scripts/install_packages.sh --for packages
scripts/build.sh "$preset"
rm -rf "$output"
cpack -G DEB --config "build/$preset/CPackConfig.cmake" -B "$output"
rm -rf "$output/_CPack_Packages"
du -h "$output"/*.deb
