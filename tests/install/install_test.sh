#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what `make install` leaves is enough to build and run a program, shared and static.
# Method: install into an empty directory, compile consumer.c against yuebing.pc, run it.
# Usage: install_test.sh SOURCE BUILD
set -eu
source=$1
build=$2
dest=$(mktemp -d)
trap 'rm -rf "$dest"' EXIT

DESTDIR=$dest meson install -C "$build" --no-rebuild --quiet
pc=$(find "$dest" -name yuebing.pc)
libdir=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_SYSROOT_DIR=$dest PKG_CONFIG_PATH=${pc%/*}
cc=${CC:-cc}
n=0
passes() { # NAME COMMAND...
    n=$((n + 1))
    local name=$1
    shift
    if "$@" >"$dest/said" 2>&1; then
        echo "ok $n - $name"
    else
        sed 's/^/# /' "$dest/said"
        echo "not ok $n - $name"
        exit 1
    fi
}
headers_complete() {
    diff <(cd "$source/include/yuebing" && ls ./*.h) \
        <(cd "$(find "$dest" -type d -path '*/include/yuebing')" && ls ./*.h)
}
shared() {
    # shellcheck disable=SC2046 # The flags are words.
    $cc "$source/tests/install/consumer.c" -o "$dest/shared" $(pkg-config --cflags --libs yuebing)
    [ "$(LD_LIBRARY_PATH=$libdir "$dest/shared")" = "yuebing $(pkg-config --modversion yuebing)" ]
}
example() {
    # shellcheck disable=SC2046 # The flags are words.
    $cc "$source/examples/transfer.c" -o "$dest/example" $(pkg-config --cflags --libs yuebing)
    LD_LIBRARY_PATH=$libdir "$dest/example" | grep -q ' equal$'
}
sched_example() {
    # shellcheck disable=SC2046 # The flags are words.
    $cc "$source/examples/sched.c" -o "$dest/sched" $(pkg-config --cflags --libs yuebing)
    LD_LIBRARY_PATH=$libdir "$dest/sched" | grep -q '^place 0, .* from place 2, '
}
store_example() {
    local address serve status=0
    # shellcheck disable=SC2046 # The flags are words.
    $cc "$source/examples/store.c" -o "$dest/store" $(pkg-config --cflags --libs yuebing)
    mkfifo "$dest/ready"
    "$(find "$dest" -path '*/bin/yuebing')" serve --listen 127.0.0.1:0 --memory 64m \
        >"$dest/ready" 2>"$dest/serve" &
    serve=$!
    exec 3<"$dest/ready"
    read -r address <&3
    LD_LIBRARY_PATH=$libdir "$dest/store" "${address#listening on }" | grep -q ' equal$' || status=1
    kill "$serve"
    wait "$serve" || cat "$dest/serve"
    exec 3<&-
    return $status
}
static() {
    local libs
    libs=$(pkg-config --static --libs yuebing | sed 's/-lyuebing/-l:libyuebing.a/')
    # shellcheck disable=SC2046,SC2086 # The flags are words.
    $cc "$source/tests/install/consumer.c" -o "$dest/static" $(pkg-config --cflags yuebing) $libs
    if ldd "$dest/static" | grep yuebing; then
        return 1
    fi
    [ "$("$dest/static")" = "yuebing $(pkg-config --modversion yuebing)" ]
}
passes "every public header is installed" headers_complete
passes "a program builds and runs against the shared library" shared
passes "the example of the transfer engine moves its bytes there and back" example
passes "the example of the scheduler sends a request past a busy place" sched_example
if find "$dest" -name libyuebing.a | grep -q .; then
    passes "a program builds and runs against the static library" static
fi
if [ -x "$build/yuebing" ]; then
    passes "the example of the store puts, gets and removes a block" store_example
    passes "the program is installed and runs" "$(find "$dest" -path '*/bin/yuebing')" --version
fi
echo "1..$n"
