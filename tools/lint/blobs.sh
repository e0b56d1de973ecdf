#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No file above 200 KB: a clone stays small for ever.
set -u
cd "$(dirname "$0")/../.." || exit 2
bad=0
while IFS= read -r -d '' file; do
    [ -f "$file" ] || continue
    size=$(stat -c %s "$file")
    if [ "$size" -gt 204800 ]; then
        echo "$file: $size bytes; the limit is 204800"
        bad=1
    fi
done < <(git ls-files -co --exclude-standard -z)
exit $bad
