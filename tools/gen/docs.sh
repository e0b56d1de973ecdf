#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Writes docs/config.md, docs/compat.md, docs/metrics.md, the manual pages, and the blocks of
# docs/engines, from the tables in the program, which has to be built (BUILD, build by default). With --check: says which
# are stale and fails.
set -u
cd "$(dirname "$0")/../.." || exit 2
program=${BUILD:-build}/yuebing
if [ ! -x "$program" ]; then
    echo "$program is not built; run make"
    exit 1
fi

made=$(mktemp) || exit 1
trap 'rm -f "$made"' EXIT
bad=0
while read -r document options; do
    # A clean environment: the documents show the tables, not this shell.
    # shellcheck disable=SC2086
    if ! env -i "$program" config $options >"$made"; then
        echo "$program config $options failed"
        exit 1
    fi
    cmp -s "$made" "$document" && continue
    if [ "${1:-}" = --check ]; then
        echo "$document is stale"
        bad=1
    else
        mkdir -p "$(dirname "$document")"
        cat "$made" >"$document"
        echo "wrote $document"
    fi
done <<'END'
docs/config.md --markdown
docs/compat.md --known
docs/man/yuebing.1 --man 1
docs/man/yuebing-config.5 --man 5
END
python3 tools/gen/blocks.py "$program" "$@" docs/engines/vllm.md docs/engines/sglang.md \
    docs/engines/lmcache.md || bad=1
python3 tools/gen/metrics.py "$program" "$@" || bad=1
exit $bad
