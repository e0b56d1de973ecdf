#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel, installs it in an environment of its own and runs tests/python there.
# Usage: tools/python_test.sh short|all [SCORE]   ("all": with every Python that is here)
#
# SCORE is a file that gets "passed failed skipped".
set -u
cd "$(dirname "$0")/.." || exit 2

mode=${1:?short or all}
score=${2:-/dev/null}
work=$PWD/build-wheel
passed=0 failed=0 skipped=0

pythons() {
    local candidate others=("${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[0-9].*/bin/python3)
    echo python3
    [ "$mode" = all ] || return
    for candidate in python3.{10..14} "${others[@]}"; do
        ! "$candidate" -c 'import ensurepip' 2>/dev/null || echo "$candidate"
    done
}

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

run_with() { # PYTHON VERSION
    local venv=$work/test-$2 packages=tests/python/packages.txt p f s
    if ! cmp -s $packages "$venv/ready"; then
        rm -rf "$venv"
        "$1" -m venv "$venv" &&
            "$venv/bin/pip" install -q --disable-pip-version-check -r $packages &&
            cp $packages "$venv/ready" || return 1
    fi
    "$venv/bin/pip" install -q --disable-pip-version-check --force-reinstall --no-deps --no-index \
        --find-links dist yuebing || return 1
    rm -f "$work/junit-$2.xml"
    (cd tests/python && env -u PYTHONPATH PYTHONDONTWRITEBYTECODE=1 timeout 900 \
        "$venv/bin/python" -m pytest -q -p no:cacheprovider --junitxml "$work/junit-$2.xml")
    read -r p f s < <("$venv/bin/python" - "$work/junit-$2.xml" <<'END'
import sys
import xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot().find("testsuite")
count = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
bad = count["failures"] + count["errors"]
print(count["tests"] - bad - count["skipped"], bad, count["skipped"])
END
    ) || return 1
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

echo "== python"
rm -rf dist
if tools/wheel.sh "$([ "$mode" = all ] && echo all || echo one)"; then
    done_with=" "
    while read -r python; do
        version=$(version_of "$python") || continue
        case $done_with in *" $version "*) continue ;; esac
        done_with="$done_with$version "
        case $version in
        3.10) compgen -G 'dist/*-cp310-*' >/dev/null || continue ;;
        esac
        echo "-- Python $version"
        run_with "$python" "$version" || failed=$((failed + 1))
    done < <(pythons)
else
    failed=1
fi
[ "$passed" -gt 0 ] || failed=$((failed + 1))
echo "$passed $failed $skipped" >"$score"
echo "python: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
