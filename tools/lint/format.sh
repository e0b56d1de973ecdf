#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# clang-format 14 decides the spacing of C. --fix rewrites, otherwise the differences are reported.
set -u
cd "$(dirname "$0")/../.." || exit 2
if ! clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    echo "skipped: no clang-format 14 (make setup)"
    exit 77
fi
how=(--dry-run --Werror --ferror-limit=3)
[ "${1:-}" = --fix ] && how=(-i)
files=()
while IFS= read -r -d '' file; do
    [ ! -f "$file" ] || files+=("$file")
done < <(git ls-files -co --exclude-standard -z -- '*.c' '*.h')
[ ${#files[@]} -gt 0 ] || exit 0
printf '%s\0' "${files[@]}" | xargs -0 -n 8 -P 4 clang-format "${how[@]}" 2>&1 || exit 1
