#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Generated files are fresh: every generator in tools/gen/ agrees with the tree (--check).
set -u
cd "$(dirname "$0")/../.." || exit 2
bad=0
for generator in tools/gen/*.sh tools/gen/*.py; do
    [ -x "$generator" ] || continue
    if ! said=$("$generator" --check 2>&1 </dev/null); then
        echo "$generator --check: ${said:-failed}; run $generator"
        bad=1
    fi
done
exit $bad
