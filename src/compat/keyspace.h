/* SPDX-License-Identifier: Apache-2.0
 *
 * keyspace.h -- what engines put into the names of blocks, and which names should have met.
 *
 * An engine finds a block of another one only if both give it the same name, letter for letter.
 * A name is made of who (model, ranks, groups) and what (the hash of the tokens up to here). All
 * names that differ in the hash alone are a family; families of one model that differ in rank or
 * group are kin. Engines cut and hash a prompt once for all ranks, so the hashes of kin are the
 * same ones. Where kin have not one in common, somebody hashes differently, and everybody's hit
 * rate is 0 %. That is silent otherwise, and is what this module finds.
 *
 *     vllm           [prefix@]model[@store_...]@tp_rank:R@pcpN@dcpN@pp_rank:N@group:G@HASH
 *     vllm-ascend    model@pcpN@dcpN@head_or_tp_rank:N@pp_rank:N@HASH[@layer]
 *     lmcache        model@world_size@worker_id@HASH@dtype[@tag%value...]
 *     lmcache-mp     model@kv_rank, 8 hex@HASH[@...]
 *     sglang         [tag_model_]HASH_rank..., emb_HASH, sglang_mooncake_store_warmup_keyHEX
 *     flexkv         HASH_FlexKV..., flexkv_mooncake_store_warmup_keyHEX
 *     other          anything else
 *
 * Of each family the YB_KEYSPACE_SAMPLE smallest values of a hash of its hashes are kept. The
 * samples of two families are then samples of the same hashes: what both would have kept and only
 * one has is not in the other. Below that number everything is exact.
 *
 * Invariants
 *   K1  Any bytes are parsed: each part lies within the key, and parts do not overlap.
 *   K2  A key is of exactly one family, which only depends on the key.
 *   K3  At most YB_KEYSPACE_FAMILIES_MAX families, 64 KiB each: 64 MiB. Keys of further families
 *       are counted together, as `others`.
 *
 * Threads   Any; one keyspace belongs to one thread at a time.
 * Memory    Keys are borrowed for the call; the keyspace copies what it keeps.
 * Time      None is read.
 */
#ifndef YB_COMPAT_KEYSPACE_H
#define YB_COMPAT_KEYSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_KEYSPACE_FAMILIES_MAX 1024u
#define YB_KEYSPACE_SAMPLE       4096u
/* Fewer blocks than this in a family say nothing. */
#define YB_KEYSPACE_JUDGED_MIN 8u

/* clang-format off */
/*    name          word */
#define YB_KEYSPACE_ENGINE_MAP(X)                                                                 \
    X(OTHER,        "other")                                                                      \
    X(VLLM,         "vllm")                                                                       \
    X(VLLM_ASCEND,  "vllm-ascend")                                                                \
    X(LMCACHE,      "lmcache")                                                                    \
    X(LMCACHE_MP,   "lmcache-mp")                                                                 \
    X(SGLANG,       "sglang")                                                                     \
    X(FLEXKV,       "flexkv")
/* clang-format on */

enum yb_keyspace_engine {
#define X(name, word) YB_KEYSPACE_##name,
    YB_KEYSPACE_ENGINE_MAP(X)
#undef X
        YB_KEYSPACE_ENGINES,
};

/* Return the word of an engine, "unknown" outside the table. Static. */
const char *yb_keyspace_engine_name(enum yb_keyspace_engine engine);

struct yb_keyspace_part {
    uint32_t at;
    uint32_t bytes; /* 0: the key has none. */
};

struct yb_keyspace_key {
    enum yb_keyspace_engine engine;
    struct yb_keyspace_part model; /* With what else has to be equal behind it. */
    struct yb_keyspace_part rank;  /* Ranks, groups, k or v. */
    struct yb_keyspace_part hash;
    /* Bytes at the beginning of the key that all of its kin have. */
    uint32_t kin_bytes;
};

/* Take a key apart. */
void yb_keyspace_parse(const void *key, size_t key_bytes, struct yb_keyspace_key *key_out);

/* ---- families ------------------------------------------------------------------------------ */

struct yb_keyspace;

/* On OK, *keyspace_out is owned by the caller, who passes it to destroy. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_keyspace_create(struct yb_keyspace **keyspace_out);

/* Consume the keyspace and set *keyspace to NULL; NULL is allowed inside. */
void yb_keyspace_destroy(struct yb_keyspace **keyspace);

/* Count one copy of a block. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_keyspace_add(struct yb_keyspace *keyspace, const void *key,
                                          size_t key_bytes, uint64_t value_bytes);

/* All that were added, and those of families beyond the limit. */
struct yb_keyspace_totals {
    uint64_t copies;
    uint64_t bytes;
    uint64_t others; /* Copies. */
};

struct yb_keyspace_family {
    enum yb_keyspace_engine engine;
    const char *text; /* The key with `*` for the hash; zero-terminated, with bytes as they came. */
    size_t text_bytes;
    struct yb_keyspace_part model; /* Of `text`. */
    struct yb_keyspace_part rank;
    uint32_t kin;    /* Number of the kin: equal for kin. */
    uint64_t copies; /* Of blocks; a block with two replicas counts twice. */
    uint64_t bytes;
    uint64_t blocks;         /* Different hashes ... */
    bool exact;              /* ... or an estimate. */
    uint64_t value_bytes;    /* The most frequent size ... */
    uint64_t value_bytes_2;  /* ... and the next one that is not rare; 0: none. */
    uint32_t hash_bytes_min; /* Characters of the hashes. */
    uint32_t hash_bytes_max;
    uint32_t peer;          /* The largest other family of the kin; its own number: none. */
    uint64_t shared;        /* Hashes that it has in common with that one, of ... */
    uint64_t shared_judged; /* ... as many of its own as could be compared. */
};

/* What is wrong with families: kind, what it is, what to do about it. */
/* clang-format off */
#define YB_KEYSPACE_WARNING_MAP(X)                                                                \
    X(APART, "blocks of one model that never have a hash in common: no engine of the one finds "  \
      "what the other put",                                                                       \
      "set PYTHONHASHSEED=0 in the environment of every engine process (LMCache, older vLLM, "    \
      "and vLLM with xxhash draw a random one otherwise); use one block size, one hash "          \
      "algorithm and one tokenizer; give "                                                        \
      "other models other names (vLLM --served-model-name does not count: the name is the last "  \
      "part of the model's path; SGLang: extra_backend_tag)")                                     \
    X(SIZES, "blocks of different sizes under one name: two models, block sizes or kinds of "     \
      "numbers share it, and one engine's blocks cannot be loaded by another",                    \
      "give each its own prefix (vLLM: extra_config cache_prefix; SGLang: extra_backend_tag; "    \
      "LMCache: another model name), or start all with the same block size and cache dtype")      \
    X(HASHES, "hashes of different lengths under one name: the engines use different algorithms", \
      "start all with the same one (vLLM: --prefix-caching-hash-algo; LMCache: "                  \
      "pre_caching_hash_algorithm)")
/* clang-format on */

enum yb_keyspace_warning_kind {
#define X(name, what, remedy) YB_KEYSPACE_##name,
    YB_KEYSPACE_WARNING_MAP(X)
#undef X
        YB_KEYSPACE_WARNINGS,
};

struct yb_keyspace_warning {
    enum yb_keyspace_warning_kind kind;
    uint32_t family;
    uint32_t other; /* The family itself, but for APART. */
};

/* "apart"; a sentence; another one. Static. */
const char *yb_keyspace_warning_name(enum yb_keyspace_warning_kind kind);
const char *yb_keyspace_warning_what(enum yb_keyspace_warning_kind kind);
const char *yb_keyspace_warning_remedy(enum yb_keyspace_warning_kind kind);

/* Compare the families, order them by size, and return how many there are. Nothing may be added
 * afterwards. */
uint32_t yb_keyspace_judge(struct yb_keyspace *keyspace);

/* After yb_keyspace_judge(): borrowed until destroy. */
const struct yb_keyspace_family *yb_keyspace_family(const struct yb_keyspace *keyspace,
                                                    uint32_t index);
struct yb_keyspace_totals yb_keyspace_totals(const struct yb_keyspace *keyspace);

/* Return how many warnings there are, and write at most `room` of them. */
uint32_t yb_keyspace_warnings(const struct yb_keyspace *keyspace,
                              struct yb_keyspace_warning *warnings_out, uint32_t room);

#endif /* YB_COMPAT_KEYSPACE_H */
