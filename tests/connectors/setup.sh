#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes the environment in which the engines' connector files are run: FOLDER/venv, and beside it
# FOLDER/known with files of the known package.
# Usage: tests/connectors/setup.sh FOLDER
#
# It is made anew when packages.txt has changed. An environment that is there already, and holds
# what packages.txt lists, can be named by CONNECTORS_VENV instead; nothing is installed in
# it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?the folder to make it in}
list=$here/packages.txt

# The known package's files that are Python over a store: its wheel has them, ours does not.
fetch_known() { # VENV
    local version=0.3.13.post1 known=$folder/known
    [ ! -e "$known/$version" ] || return 0
    rm -rf "$known"
    mkdir -p "$known"
    "$1/bin/pip" download -q --disable-pip-version-check --no-deps --dest "$known" \
        "mooncake-transfer-engine-non-cuda==$version" >&2
    "$1/bin/python" - "$known" <<'END'
import glob, re, sys, zipfile
wheel, = glob.glob(sys.argv[1] + "/*.whl")
wanted = re.compile(r"mooncake/(structured_object_store|dataproto_catalog)\.py|.*\.dist-info/.*")
with zipfile.ZipFile(wheel) as packed:
    packed.extractall(sys.argv[1], [name for name in packed.namelist() if wanted.fullmatch(name)])
END
    rm "$known"/*.whl
    touch "$known/$version"
}

if [ -n "${CONNECTORS_VENV:-}" ]; then
    fetch_known "$CONNECTORS_VENV"
    echo "$CONNECTORS_VENV"
    exit 0
fi
venv=$folder/venv
stamp=$(sha256sum <"$list")
if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$stamp" ]; then
    # The lists' wheels are of this version.
    for python in python3.11 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.11.*/bin/python3 python3; do
        "$python" -c 'import ensurepip, sys; sys.exit(sys.version_info[:2] != (3, 11))' \
            2>/dev/null && break
        python=
    done
    if [ -z "$python" ]; then
        echo "connectors: no Python 3.11 with its venv here (python3, python3-venv)" >&2
        exit 1
    fi
    mkdir -p "$folder"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check --no-deps -r "$list" >&2 || {
        echo "connectors: pip cannot install $list; PyPI, or a mirror of it (PIP_INDEX_URL)," \
            "and 8 GiB of disk are needed" >&2
        exit 1
    }
    echo "$stamp" >"$venv/stamp"
fi
fetch_known "$venv"
echo "$venv"
