#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two llama.cpp processes, one after the other, share a prompt's cache through a store.

    llama_two_processes.py YUEBING MODEL.gguf

runs examples/llama_cpp_prefix_cache.py twice against a store of its own. The second must load all
whole chunks that the first computed, generate the same tokens, and have the first of them earlier.
A prompt that goes on differently after three chunks must load just these.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "llama_cpp_prefix_cache.py"
CHUNK = 64


def start_store(program, log):
    command = [program, "serve", "--net-listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=log, stderr=log)
    until = time.monotonic() + 30
    while time.monotonic() < until and server.poll() is None:
        found = re.search(r"^listening on (\S+)", Path(log.name).read_text(), re.M)
        if found:
            return server, found.group(1)
        time.sleep(0.05)
    server.kill()
    raise SystemExit("the store does not start: " + Path(log.name).read_text()[-500:])


def generate(model, directory, prompt, folder):
    file = folder / "prompt.txt"
    file.write_text(prompt)
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), model, "--directory", directory, "--json", "--chunk",
         str(CHUNK), "--prompt-file", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900, env=os.environ,
    )
    if done.returncode != 0:
        raise SystemExit(f"the example ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    program, model = sys.argv[1:]
    words = " ".join(f"Item {i} weighs {i * 37 % 101} grams." for i in range(60))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open(folder / "serve.log", "w+") as log:
            server, directory = start_store(program, log)
            try:
                new = generate(model, directory, words, folder)
                again = generate(model, directory, words, folder)
                end = words[: len(words) * 3 * CHUNK // new["prompt_tokens"]]
                other = generate(model, directory, end + " And now something else." * 20, folder)
            finally:
                server.terminate()
                server.wait(30)
    for what, row in (("new", new), ("the same", again), ("begins alike", other)):
        print(f"{what:14} {row['prompt_tokens']:5} tokens, {row['loaded_tokens']:5} loaded,"
              f" first token after {row['ttft_s']:.3f} s")
    whole = (new["prompt_tokens"] - 1) // CHUNK * CHUNK
    checks = {
        "nothing was there before": new["loaded_tokens"] == 0,
        "all whole chunks were loaded": again["loaded_tokens"] == whole,
        "the tokens are equal": again["tokens"] == new["tokens"],
        "the first token came earlier": again["ttft_s"] < new["ttft_s"],
        "of a prompt that begins alike the beginning was loaded":
            0 < other["loaded_tokens"] <= 3 * CHUNK,
    }
    for text, held in checks.items():
        print(f"{'ok' if held else 'NOT OK'}: {text}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
