#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: each check of tools/lint/ notices what it is there for, and is content without it.
# Method: a scratch repository with one sin at a time.
# Usage: lint_test.sh SOURCE
set -u
source=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 2
git init -q . && mkdir -p tools src/base src/net include/yuebing tools/gen
cp -r "$source/tools/lint" "$source/tools/layers.txt" tools/
cp "$source/.clang-format" .
spdx='/* SPDX-License-Identifier: Apache-2.0 */'
n=0 bad=0

expect() { # WANTED-STATUS CHECK WHAT
    "tools/lint/$2" >/dev/null 2>&1 </dev/null
    local got=$?
    n=$((n + 1))
    if [ "$got" -eq "$1" ] || [ "$got" -eq 77 ]; then
        echo "ok $n - ${2%.*}: $3"
    else
        echo "not ok $n - ${2%.*}: $3 (status $got, not $1)"
        bad=1
    fi
}
sin() { # CHECK FILE TEXT WHAT
    mkdir -p "$(dirname "$2")"
    expect 0 "$1" "content before: $4"
    printf '%b\n' "$3" >"$2"
    expect 1 "$1" "$4"
    rm -f "$2"
}
long=$(printf 'x;\\n%.0s' {1..71})
sin spdx.sh src/base/a.c 'int yb_a;' 'a source without a licence line'
sin layers.py src/base/a.c "$spdx\n#include \"net/b.h\"" 'base includes net'
sin layers.py src/odd/a.c "$spdx" 'a folder that is not in the table'
sin headers.py src/base/a.h "$spdx\nuint32_t yb_a(void);" 'a header that needs another one first'
sin headers.py include/yuebing/a.h "$spdx\nint yb_new(int class, int new);" \
    'a public header that is not C++'
sin sizes.py src/base/a.c "$spdx\nvoid\nf(void)\n{\n$long}" 'a function of 75 lines'
sin sizes.py src/base/a.c "$spdx\nvoid\nf(int a, int b, int c, int d, int e, int f, int g)\n{\n}" \
    'seven parameters'
sin sizes.py src/base/a.c "$spdx\nvoid\nf(void)\n{\nif (a) {\nif (a) {\nif (a) {\nif (a) {\nif (a) {
}\n}\n}\n}\n}\n}" 'nesting of five'
sin sizes.py src/base/a.c "$spdx\n/* $(printf '%0100d' 0) */" 'a line of 106 columns'
sin forbidden.py src/base/a.c "$spdx\nint\nf(void)\n{\nreturn atoi(\"1\");\n}" 'atoi'
sin forbidden.py src/net/a.c "$spdx\nint\nf(void)\n{\nreturn getenv(\"A\") != 0;\n}" 'getenv'
sin forbidden.py tests/unit/a.c "$spdx\nint\nf(void)\n{\nusleep(1);\n}" 'a test that sleeps'
middle='    if (b) {\n        return 1;\n    }\n    return 0;'
sin unwinding.py src/base/a.c \
    "$spdx\nint\nf(void)\n{\n    goto err_x;\n$middle\nerr_x:\n    return 2;\n}" \
    'a return past unwinding'
sin threads.py src/net/a.c \
    "$spdx\nstatic void *\nrun(void *x)\n{\n    return x;\n}\n\nbool\nf(void)\n{\n    return \
pthread_create(&t, NULL, run, x) == 0;\n}" 'a thread that keeps the core of who made it'
sin private_paths.sh docs/a.md "see /ho""me/somebody/notes" 'a path of one machine'
printf '#!/bin/sh\nexit 1\n' >tools/gen/a.sh && chmod +x tools/gen/a.sh
expect 1 generated.sh 'a generated file is stale'
rm tools/gen/a.sh
wire=src/net/wire/schema.toml
(cd "$source" && cp --parents src/*/wire/schema.toml tests/wire/every_type.toml \
    docs/protocol*-intro.md tools/gen/wire.py "$scratch")
tools/gen/wire.py >/dev/null
schema=$(sed -n 's/^#define YB_WIRE_SCHEMA UINT64_C(\(.*\))$/\1/p' src/net/wire/wire.h)
printf '\n[[released]]\nversion = 1\nschema = %s\nsoftware = "1.0"\n' "$schema" >>$wire
expect 0 generated.sh 'content before: a layout of a released version changed'
sed -i 's/^HANDSHAKE_BYTES_MAX = { value = 4096/HANDSHAKE_BYTES_MAX = { value = 4095/' $wire
tools/gen/wire.py >/dev/null 2>&1
expect 1 generated.sh 'a layout of a released version changed'
sed -i 's/^VERSION_MAX = { value = 1/VERSION_MAX = { value = 2/' $wire
tools/gen/wire.py >/dev/null
expect 0 generated.sh 'content before: a version is spoken that no release spoke'
sed -i '/^\[\[released/,$d' $wire
expect 1 generated.sh 'a version is spoken that no release spoke'
rm -r src/*/wire tests/wire docs tools/gen/wire.py
sin scripts.sh tools/a.py "def f(:" 'Python that does not parse'
mkdir -p docs/engines && cp "$source/docs/semantics.md" "$source/docs/scenarios.md" docs/
cp "$source/docs/engines/calls.md" docs/engines/
cp "$source/include/yuebing/client.h" include/yuebing/
cp -r "$source"/tests/{unit,sim,system,python,connectors} tests/
expect 0 semantics.py 'content before: a row whose test is not there'
sed -i 's/:flipped_byte/:no_such_case/' docs/semantics.md
expect 1 semantics.py 'a row whose test is not there'
cp "$source/docs/semantics.md" docs/
sed -i 's/"1000 half headers"/"no such words"/' docs/scenarios.md
expect 1 semantics.py 'a scenario whose case is not there'
cp "$source/docs/scenarios.md" docs/
sed -i 's/"a full store says -200"/"no such words"/' docs/engines/calls.md
expect 1 semantics.py 'a call of engines whose case is not there'
cp "$source/docs/rules.md" docs/
cp -r "$source/tests/mutants" tests/ && cp -r "$source/src/." src/
expect 0 rules.py 'content before: a rule without a mutant'
rm tests/mutants/store-a3-late-bytes.mutant
expect 1 rules.py 'a mutant that is not there'
cp "$source/tests/mutants/store-a3-late-bytes.mutant" tests/mutants/
sed -i '/^| B6 |/d' docs/rules.md
expect 1 rules.py 'a rule without a row'
rm -r tests/mutants src && mkdir -p src/base src/net
rm -r docs tests/{python,sim,system,unit,connectors} include/yuebing/client.h
cp "$source/tools/mutants.py" tools/
sin mutants.sh tests/mutants/a.mutant \
    '# A rule.\nfile: tools/layers.txt\ntest: x\n<<<<\nno such line\n====\nanother\n>>>>' \
    'a mutant that does not apply'
sin format.sh src/base/a.c "$spdx\nint   yb_a;" 'spacing of its own'
head -c 204801 /dev/zero >big
expect 1 blobs.sh 'a file above 200 KB'
rm big
expect 0 blobs.sh 'content without it'
echo "1..$n"
exit $bad
