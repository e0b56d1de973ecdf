#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what tools/packages.txt lists and this machine lacks. Asks nothing.
# Usage: tools/setup.sh [build|test|full|peer]   (default full)
# test contains build; full and peer contain test.
set -eu
cd "$(dirname "$0")/.."

group=${1:-full}
case $group in
build) wanted=" build " ;;
test) wanted=" build test " ;;
full) wanted=" build test full " ;;
peer) wanted=" build test peer " ;;
*) echo "setup: unknown group '$group'; use build, test, full or peer" >&2; exit 2 ;;
esac

have() { # PACKAGE PROBE
    case $2 in
    cmd:*) command -v "${2#cmd:}" >/dev/null ;;
    pc:*) pkg-config --exists "${2#pc:}" 2>/dev/null ;;
    py:*) python3 -c 'import sys
want = tuple(map(int, sys.argv[1].split(".")))
sys.exit(sys.version_info[:2] < want)' "${2#py:}" 2>/dev/null ;;
    mod:*) python3 -c "import ${2#mod:}" 2>/dev/null ;;
    include) python3 -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' \
        2>/dev/null ;;
    deb) ! command -v dpkg-query >/dev/null ||
        dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed' ;;
    *) echo "setup: bad probe '$2' for $1 in tools/packages.txt" >&2; exit 2 ;;
    esac
}

missing=()
while read -r package in_group probe _; do
    case $package in '' | '#'*) continue ;; esac
    case $wanted in *" $in_group "*) ;; *) continue ;; esac
    have "$package" "$probe" || missing+=("$package")
done <tools/packages.txt

if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "setup: no apt-get here. Install what your system calls: ${missing[*]}" >&2
    echo "setup: (tools/packages.txt says what each is for)" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "setup: missing: ${missing[*]}" >&2
    echo "setup: run this once, then repeat your command:" >&2
    echo "    sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends" \
        "${missing[*]}'" >&2
    exit 1
fi

echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
options=(-y -q -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)
apt-get update "${options[@]}" </dev/null >/dev/null ||
    echo "setup: apt-get update failed; trying anyway" >&2
apt-get install "${options[@]}" --no-install-recommends "${missing[@]}" </dev/null >/dev/null
echo "setup: done"
