#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes the environments that peer.py compares, under BUILD/bench-peer, and runs it.
# Usage: bench/python/run.sh BUILD [options of peer.py]
#
# The first time it takes as long as the packages take to come. CONNECTORS_VENV names an environment
# with LMCache and Redis' client that is there already, as for tests/connectors/setup.sh.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:?the build folder}
folder=$build/bench-peer
shift
mkdir -p "$folder"

venv() { # NAME PACKAGE...: an environment with these packages, made once
    local at=$folder/$1
    if [ "$(cat "$at/stamp" 2>/dev/null)" != "${*:2}" ]; then
        rm -rf "$at"
        python3 -m venv "$at"
        "$at/bin/pip" install -q --disable-pip-version-check "${@:2}" >&2 || return 1
        echo "${*:2}" >"$at/stamp"
    fi
    echo "$at"
}

"$root/tools/wheel.sh" one >&2
rm -rf "$folder/ours" # The wheel's name does not tell whether it is another.
ours=$(venv ours "$(echo "$root"/dist/yuebing-*abi3*.whl)")
sides=(--ours "$ours")
# What it links and runs is in tools/packages.txt; peer.py says why a side cannot run.
peer=$(venv peer mooncake-transfer-engine-non-cuda==0.3.13.post1) && sides+=(--peer "$peer")
# LMCache and Redis' client are in the environment of the engines' connector files.
kv=$("$root/tests/connectors/setup.sh" "$build/connectors") && sides+=(--kv "$kv")
command -v redis-server >/dev/null ||
    echo "bench-peer: no redis-server (apt-get install redis-server): no rows of it" >&2
exec python3 "$root/bench/python/peer.py" "${sides[@]}" "$@"
