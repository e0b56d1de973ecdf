#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every check in this folder and prints a table. Usage: tools/lint/run.sh [BUILD]
set -u
cd "$(dirname "$0")/../.." || exit 2
export BUILD=${1:-build}
bad=0
for check in tools/lint/*.sh tools/lint/*.py; do
    name=$(basename "$check")
    case $name in run.sh | csource.py) continue ;; esac
    said=$("$check" 2>&1 </dev/null)
    case $? in
    0) word=ok ;;
    77) word=skipped ;;
    *) word=FAILED bad=1 ;;
    esac
    printf '%-8s %s\n' "$word" "$(sed -n '3s/^# //p' "$check")"
    [ -z "$said" ] || printf '%s\n' "$said" | sed 's/^/         /'
done
exit $bad
