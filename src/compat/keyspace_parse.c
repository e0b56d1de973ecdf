/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of engines, taken apart. Every function reads within [0, bytes) of the key.
 */
#include <string.h>

#include "compat/keyspace.h"

#define FIELDS_MAX       16u /* Of a key that is cut at `@`; the last one has the rest. */
#define SGLANG_HASH      64u /* SHA-256 in hexadecimal. */
#define LMCACHE_HASH_MIN 8u

struct text {
    const char *bytes;
    uint32_t length;
};

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool
is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* How many bytes from `at` on are digits, or hexadecimal ones. */
static uint32_t
run_of(struct text key, uint32_t at, bool (*is)(char c))
{
    uint32_t end = at;

    while (end < key.length && is(key.bytes[end])) {
        end++;
    }
    return end - at;
}

/* Where `word` begins at or after `at`; UINT32_MAX: nowhere. */
static uint32_t
find(struct text key, uint32_t at, const char *word)
{
    const char *found =
        at < key.length ? memmem(key.bytes + at, key.length - at, word, strlen(word)) : NULL;

    return found == NULL ? UINT32_MAX : (uint32_t)(found - key.bytes);
}

/* Whether all of [at, end) are of a kind, and there is at least one. */
static bool
all_are(struct text key, uint32_t at, uint32_t end, bool (*is)(char c))
{
    return at < end && run_of((struct text){key.bytes, end}, at, is) == end - at;
}

static struct yb_keyspace_part
part(uint32_t at, uint32_t end)
{
    return (struct yb_keyspace_part){.at = at, .bytes = end - at};
}

/* The byte after the last `@` before `end`; 0: there is none. */
static uint32_t
after_last_at(struct text key, uint32_t end)
{
    const char *found = end == 0 ? NULL : memrchr(key.bytes, '@', end);

    return found == NULL ? 0 : (uint32_t)(found - key.bytes) + 1;
}

static bool
parse_vllm(struct text key, struct yb_keyspace_key *out)
{
    uint32_t ranks = find(key, 0, "@tp_rank:");
    uint32_t group = find(key, ranks == UINT32_MAX ? key.length : ranks, "@group:");
    uint32_t hash = after_last_at(key, key.length);
    uint32_t space;

    if (ranks == UINT32_MAX || ranks == 0 || group == UINT32_MAX || hash <= group + 1 ||
        !all_are(key, hash, key.length, is_hex)) {
        return false;
    }
    space = find((struct text){key.bytes, ranks}, 0, "@store_");
    out->engine = YB_KEYSPACE_VLLM;
    out->model = part(after_last_at(key, space == UINT32_MAX ? ranks : space), ranks);
    out->rank = part(ranks + 1, hash - 1);
    out->hash = part(hash, key.length);
    return true;
}

static bool
parse_vllm_ascend(struct text key, struct yb_keyspace_key *out)
{
    uint32_t ranks = find(key, 0, "@pcp");
    uint32_t last = find(key, ranks == UINT32_MAX ? key.length : ranks, "@pp_rank:");
    uint32_t head = find(key, ranks == UINT32_MAX ? key.length : ranks, "@head_or_tp_rank:");
    uint32_t hash, end;

    if (ranks == UINT32_MAX || ranks == 0 || head == UINT32_MAX || last == UINT32_MAX ||
        last < head) {
        return false;
    }
    hash = find(key, last + 1, "@");
    if (hash == UINT32_MAX) {
        return false;
    }
    hash++;
    end = hash + run_of(key, hash, is_hex);
    if (end == hash || (end < key.length && key.bytes[end] != '@')) {
        return false;
    }
    out->engine = YB_KEYSPACE_VLLM_ASCEND;
    out->model = part(0, ranks);
    out->rank = part(ranks + 1, hash - 1);
    out->hash = part(hash, end);
    return true;
}

/* Cut at `@`: starts[i] is where field i begins, starts[count] one behind the end of the last. */
static uint32_t
fields_of(struct text key, uint32_t starts[FIELDS_MAX + 1])
{
    uint32_t count = 1;

    starts[0] = 0;
    for (uint32_t i = 0; i < key.length && count < FIELDS_MAX; i++) {
        if (key.bytes[i] == '@') {
            starts[count++] = i + 1;
        }
    }
    starts[count] = key.length + 1;
    return count;
}

static bool
parse_lmcache(struct text key, struct yb_keyspace_key *out)
{
    uint32_t starts[FIELDS_MAX + 1];
    uint32_t count = fields_of(key, starts);
    bool layered = count >= 5 && all_are(key, starts[1], starts[2] - 1, is_digit) &&
                   all_are(key, starts[2], starts[3] - 1, is_digit) &&
                   all_are(key, starts[3], starts[4] - 1, is_hex);
    uint32_t hash = layered ? 3 : 2;

    if (!layered && (count < 3 || starts[2] - 1 - starts[1] != 8 ||
                     !all_are(key, starts[1], starts[2] - 1, is_hex) ||
                     !all_are(key, starts[2], starts[3] - 1, is_hex))) {
        return false;
    }
    if (starts[1] < 2 || starts[hash + 1] - 1 - starts[hash] < LMCACHE_HASH_MIN) {
        return false;
    }
    out->engine = layered ? YB_KEYSPACE_LMCACHE : YB_KEYSPACE_LMCACHE_MP;
    out->model = part(0, starts[1] - 1);
    out->rank = part(starts[1], starts[hash] - 1);
    out->hash = part(starts[hash], starts[hash + 1] - 1);
    return true;
}

static bool
parse_warm_up(struct text key, struct yb_keyspace_key *out)
{
    static const char word[] = "_mooncake_store_warmup_key";
    uint32_t at = find(key, 0, word);
    uint32_t end = at == UINT32_MAX ? 0 : at + (uint32_t)sizeof(word) - 1;

    if (at != 6 || (memcmp(key.bytes, "sglang", 6) != 0 && memcmp(key.bytes, "flexkv", 6) != 0)) {
        return false;
    }
    out->engine = key.bytes[0] == 's' ? YB_KEYSPACE_SGLANG : YB_KEYSPACE_FLEXKV;
    out->model = part(0, end);
    out->hash = part(end, key.length);
    return true;
}

static bool
parse_flexkv(struct text key, struct yb_keyspace_key *out)
{
    uint32_t end = run_of(key, 0, is_digit);

    if (end == 0 || find(key, end, "_FlexKV") != end) {
        return false;
    }
    out->engine = YB_KEYSPACE_FLEXKV;
    out->hash = part(0, end);
    out->rank = part(end + 1, key.length);
    return true;
}

static bool
parse_sglang(struct text key, struct yb_keyspace_key *out)
{
    uint32_t at = 0;

    if (key.length > 4 && memcmp(key.bytes, "emb_", 4) == 0) {
        out->engine = YB_KEYSPACE_SGLANG;
        out->model = part(0, 3);
        out->hash = part(4, key.length);
        return true;
    }
    while (at < key.length) {
        uint32_t end = at + run_of(key, at, is_hex);

        if (end - at == SGLANG_HASH && end < key.length && key.bytes[end] == '_') {
            out->engine = YB_KEYSPACE_SGLANG;
            out->model = part(0, at == 0 ? 0 : at - 1);
            out->hash = part(at, end);
            out->rank = part(end + 1, key.length);
            return true;
        }
        /* A hash begins behind an underline only. */
        at = find(key, end, "_");
        at = at == UINT32_MAX ? key.length : at + 1;
    }
    return false;
}

void
yb_keyspace_parse(const void *key, size_t key_bytes, struct yb_keyspace_key *key_out)
{
    static bool (*const parsers[])(struct text key, struct yb_keyspace_key * out) = {
        parse_vllm, parse_vllm_ascend, parse_lmcache, parse_warm_up, parse_flexkv, parse_sglang,
    };
    struct text text = {key, key_bytes > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)key_bytes};
    bool found = false;

    *key_out = (struct yb_keyspace_key){.engine = YB_KEYSPACE_OTHER};
    for (size_t i = 0; !found && text.length > 0 && i < sizeof(parsers) / sizeof(parsers[0]); i++) {
        found = parsers[i](text, key_out);
    }
    key_out->kin_bytes = key_out->model.at + key_out->model.bytes;
}
