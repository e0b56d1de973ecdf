#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp with a prefix cache in a store: what one process computed, another one loads.

    yuebing serve &
    llama_cpp_prefix_cache.py MODEL.gguf --prompt-file long.txt     # computes, and stores
    llama_cpp_prefix_cache.py MODEL.gguf --prompt-file long.txt     # loads, computes the rest

The prompt's tokens are cut into chunks; each chunk's key names the whole prefix up to its end
(yuebing.block_keys), salted by the model, so that prompts that begin alike share their beginnings.
A chunk's value is llama.cpp's own state of the positions of that chunk. Needs the packages
yuebing and llama-cpp-python.
"""

import argparse
import ctypes
import hashlib
import json
import sys
import time

import llama_cpp
import yuebing

WHOLE, SCRATCH = 0, 1  # Sequences: the prompt; a chunk on its way in or out.


class Model:
    """A model and one context; just enough of llama.cpp to fill and to read its KV cache."""

    def __init__(self, path, context):
        llama_cpp.llama_backend_init()
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), options)
        if not self.model:
            raise SystemExit(f"{path} is no model that llama.cpp can load")
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_seq_max = context, 512, 2
        options.kv_unified = True  # Sequences share cells: a chunk is handed over, not copied.
        self.context = llama_cpp.llama_init_from_model(self.model, options)
        if not self.context:
            raise SystemExit(f"no memory for a context of {context} tokens")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)

    def tokens(self, text):
        raw = text.encode()
        room = (llama_cpp.llama_token * (len(raw) + 8))()
        count = llama_cpp.llama_tokenize(
            self.vocabulary, raw, len(raw), room, len(room), True, False
        )
        return list(room[:count])

    def compute(self, tokens, start):
        """Fill the cache with tokens[start:]; the last one's logits are then there."""
        for at in range(start, len(tokens), 512):
            piece = tokens[at : at + 512]
            array = (llama_cpp.llama_token * len(piece))(*piece)
            batch = llama_cpp.llama_batch_get_one(array, len(piece))
            if llama_cpp.llama_decode(self.context, batch) != 0:
                raise RuntimeError("llama.cpp could not compute; is the context too small?")

    def best(self):
        """The likeliest next token."""
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        count = llama_cpp.llama_vocab_n_tokens(self.vocabulary)
        view = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float * count)).contents
        return max(range(count), key=view.__getitem__)

    def save(self, first, last):
        """The state of positions [first, last)."""
        llama_cpp.llama_memory_seq_cp(self.memory, WHOLE, SCRATCH, first, last)
        size = llama_cpp.llama_state_seq_get_size(self.context, SCRATCH)
        state = (ctypes.c_uint8 * size)()
        llama_cpp.llama_state_seq_get_data(self.context, state, size, SCRATCH)
        llama_cpp.llama_memory_seq_rm(self.memory, SCRATCH, -1, -1)
        return state

    def load(self, state, first, last):
        """Put back what save() gave; False if llama.cpp does not take it."""
        array = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        if llama_cpp.llama_state_seq_set_data(self.context, array, len(state), SCRATCH) == 0:
            return False
        llama_cpp.llama_memory_seq_cp(self.memory, SCRATCH, WHOLE, first, last)
        llama_cpp.llama_memory_seq_rm(self.memory, SCRATCH, -1, -1)
        return True


def salt_of(path):
    """What a chunk's state depends on besides its tokens: the model's bytes, and the library."""
    digest = hashlib.sha256(llama_cpp.__version__.encode())
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def fetch(store, model, keys, chunk, limit):
    """Load the leading chunks that are there; returns how many tokens that were."""
    there = 0
    for found in store.exist_many(keys[: limit // chunk]):
        if not found:
            break
        there += 1
    for number, state in enumerate(store.get_many(keys[:there])):
        if state is None or not model.load(state, number * chunk, (number + 1) * chunk):
            return number * chunk
    return there * chunk


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--directory", default="127.0.0.1:14700", help="where the store is")
    parser.add_argument("--prompt-file", required=True)
    parser.add_argument("--chunk", type=int, default=256, help="tokens of one key")
    parser.add_argument("--tokens", type=int, default=16, help="how many to generate")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with open(args.prompt_file, encoding="utf-8") as file:
        text = file.read()
    salt = salt_of(args.model)
    model = Model(args.model, 8192)
    tokens = model.tokens(text)
    keys = yuebing.block_keys(tokens, args.chunk, salt)
    with yuebing.Store(args.directory) as store:
        start = time.perf_counter()
        # The last token is computed in any case: its logits are no part of the cache.
        loaded = fetch(store, model, keys, args.chunk, len(tokens) - 1)
        model.compute(tokens, loaded)
        out = [model.best()]
        first = time.perf_counter() - start
        missing = range(loaded // args.chunk, len(keys))
        states = {keys[i]: model.save(i * args.chunk, (i + 1) * args.chunk) for i in missing}
        stored = sum(result.ok for result in store.put_many(states)) if states else 0
    while len(out) < args.tokens:
        model.compute([out[-1]], 0)
        out.append(model.best())
    result = {
        "prompt_tokens": len(tokens), "loaded_tokens": loaded, "stored_chunks": stored,
        "ttft_s": round(first, 4), "tokens": out,
    }
    if args.json:
        print(json.dumps(result))
    else:
        print(f"{len(tokens)} tokens in the prompt, {loaded} of them loaded, first token after"
              f" {first:.3f} s, {stored} chunks stored\nthen: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
