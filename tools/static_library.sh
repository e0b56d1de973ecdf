#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a static library that exports no more than the shared one: one object, hidden names local.
# Usage: tools/static_library.sh CORE.a OUT.a
set -eu
object=${2%.a}.o
rm -f "$2"
ld -r --whole-archive "$1" -o "$object"
objcopy --localize-hidden "$object"
ar rcsD "$2" "$object"
rm -f "$object"
