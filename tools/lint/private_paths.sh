#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No file names a directory of somebody's machine.
set -u
cd "$(dirname "$0")/../.." || exit 2
# The brackets keep this file from finding itself.
pattern='(^|[^[:alnum:]_.}-])/([w]ork|[r]oot|[h]ome/[[:alnum:]]+|[U]sers/[[:alnum:]]+)/'
found=$(git ls-files -co --exclude-standard -z | xargs -0 grep -InE "$pattern" -- 2>/dev/null)
[ -z "$found" ] || { echo "$found"; exit 1; }
