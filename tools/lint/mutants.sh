#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every mutant's text stands exactly once in the file that it names.
set -u
cd "$(dirname "$0")/../.." || exit 2
exec tools/mutants.py --check
