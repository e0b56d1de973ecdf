#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every source carries one SPDX line among its first three lines, and no licence text.
set -u
cd "$(dirname "$0")/../.." || exit 2
bad=0
while read -r file; do
    [ -f "$file" ] || continue
    if ! head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0'; then
        echo "$file:1: no SPDX line"
        bad=1
    fi
done < <(git ls-files -co --exclude-standard -- '*.c' '*.h' '*.py' '*.sh' Makefile .ci/run)
exit $bad
