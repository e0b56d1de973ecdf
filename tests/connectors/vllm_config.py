# SPDX-License-Identifier: Apache-2.0
"""vLLM's own configuration and its KV caches, of a small model, for its connectors' workers.

The tensors are shaped as its attention on a device shapes them: (blocks, heads, tokens, content).
Half of the layers lie head by head, so that a block of them is several pieces.
"""
import json
import os
import tempfile

import torch

from memory import of, pattern

BLOCK_TOKENS = 128
LAYERS = 4
HEADS = 4
HEAD_SIZE = 32
CONTENT = 2 * HEAD_SIZE  # Of keys and values, in float32.
HEAD_BYTES = BLOCK_TOKENS * CONTENT * 4
BLOCK_BYTES = HEADS * HEAD_BYTES * LAYERS

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": LAYERS, "num_attention_heads": 8,
    "num_key_value_heads": HEADS, "head_dim": HEAD_SIZE, "vocab_size": 1024,
    "max_position_embeddings": 65536, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
    "hidden_act": "silu"}


def vllm_config(connector, role, extra, blocks):
    """A configuration as the engine makes it, and the groups of ranks, here of one rank."""
    from vllm.config import KVTransferConfig, set_current_vllm_config
    from vllm.distributed import (ensure_model_parallel_initialized,
                                  init_distributed_environment)
    from vllm.engine.arg_utils import EngineArgs
    folder = tempfile.mkdtemp(prefix="yuebing-connectors-")
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(MODEL, file)
    config = EngineArgs(
        model=folder, served_model_name="tiny", load_format="dummy", skip_tokenizer_init=True,
        dtype="float32", max_model_len=32768, enforce_eager=True, block_size=BLOCK_TOKENS,
        enable_prefix_caching=True,
        kv_transfer_config=KVTransferConfig(kv_connector=connector, kv_role=role,
                                            kv_connector_extra_config=extra),
    ).create_engine_config()
    # Rank processes of one model find its name in their keys: a name of its own is no use.
    config.model_config.model = "tiny"
    config.cache_config.num_gpu_blocks = blocks
    rendezvous = os.path.join(folder, "rendezvous")
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file://{rendezvous}", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)
    return config


def names():
    return [f"model.layers.{i}.self_attn.attn" for i in range(LAYERS)]


def kv_cache_config(blocks):
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    spec = FullAttentionSpec(block_size=BLOCK_TOKENS, num_kv_heads=HEADS, head_size=HEAD_SIZE,
                             dtype=torch.float32)
    return KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[],
                         kv_cache_groups=[KVCacheGroupSpec(names(), spec)])


class Caches:
    """The KV cache tensors of all layers, and what their blocks ought to hold."""

    def __init__(self, kind, blocks, by_head=LAYERS // 2):
        self.memory = of(kind)
        self.tensors = {}
        self.pieces = []  # (address of block 0, bytes of a block)
        for index, name in enumerate(names()):
            raw = self.memory.allocate(blocks * HEADS * HEAD_BYTES).view(torch.float32)
            if index < by_head:
                tensor = raw.view(HEADS, blocks, BLOCK_TOKENS, CONTENT).permute(1, 0, 2, 3)
                self.pieces += [(raw.data_ptr() + h * blocks * HEAD_BYTES, HEAD_BYTES)
                                for h in range(HEADS)]
            else:
                tensor = raw.view(blocks, HEADS, BLOCK_TOKENS, CONTENT)
                self.pieces.append((raw.data_ptr(), HEADS * HEAD_BYTES))
            self.tensors[name] = tensor

    def fill(self, block, name):
        for i, (base, size) in enumerate(self.pieces):
            self.memory.write(base + block * size, pattern(f"{name}/{i}", size))

    def wrong(self, blocks, block_names):
        return [b for b, n in zip(blocks, block_names, strict=True)
                if any(self.memory.read(base + b * size, size) != pattern(f"{n}/{i}", size)
                       for i, (base, size) in enumerate(self.pieces))]
