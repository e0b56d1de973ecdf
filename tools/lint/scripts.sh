#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Shell scripts pass shellcheck; Python files parse; what is run directly is executable.
set -u
cd "$(dirname "$0")/../.." || exit 2
bad=0
mapfile -t shell < <(git ls-files -co --exclude-standard -- '*.sh' .ci/run | sort -u)
mapfile -t python < <(git ls-files -co --exclude-standard -- '*.py' | sort -u)
for file in "${shell[@]}" "${python[@]}"; do
    if head -c 2 "$file" | grep -q '#!' && [ ! -x "$file" ]; then
        echo "$file: starts with #! but is not executable"
        bad=1
    fi
done
python3 - "${python[@]}" <<'END' || bad=1
import ast, sys
for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        ast.parse(file.read(), name)
END
if command -v shellcheck >/dev/null; then
    shellcheck -x "${shell[@]}" || bad=1
else
    echo "skipped: no shellcheck (make setup)"
    [ $bad -ne 0 ] || exit 77
fi
exit $bad
