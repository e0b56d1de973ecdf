#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs a finished build. Usage: tools/install.sh BUILD PREFIX [DESTDIR]
set -eu
cd "$(dirname "$0")/.."
build=${1:?build directory}
prefix=${2:?prefix}

# The prefix is written into yuebing.pc when the build is configured.
configured=$(meson introspect --buildoptions "$build" |
    python3 -c 'import json, sys
print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
if [ "$configured" != "$prefix" ]; then
    meson configure "$build" -Dprefix="$prefix"
    ninja -C "$build"
fi
DESTDIR=${3:-} meson install -C "$build" --no-rebuild
if [ -z "${3:-}" ] && [ "$(id -u)" -eq 0 ]; then
    ldconfig
fi
