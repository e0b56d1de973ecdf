/* SPDX-License-Identifier: Apache-2.0
 *
 * Counting what is never there, and looking why.
 */
#include "compat/zero.h"

#include <string.h>

#include "base/check.h"
#include "compat/store_internal.h"

#define LOOK_NS   (500 * YB_NS_PER_MS)
#define LOOKED_AT 4096u /* Keys of others, before it is given up. */

/* ---- counting ------------------------------------------------------------------------------- */

static struct yb_compat_zero_kin *
kin_of(struct yb_compat_zero *zero, enum yb_keyspace_engine engine, uint64_t hash)
{
    for (uint32_t i = 0; i < YB_COMPAT_ZERO_KIN_MAX; i++) {
        struct yb_compat_zero_kin *kin = &zero->kin[i];

        if (!kin->used) {
            *kin = (struct yb_compat_zero_kin){
                .used = true,
                .engine = engine,
                .hash = hash,
                .wait_ns = YB_COMPAT_ZERO_WAIT_MIN,
            };
        }
        if (kin->engine == engine && kin->hash == hash) {
            return kin;
        }
    }
    return NULL; /* Z1 */
}

bool
yb_compat_zero_note(struct yb_compat_zero *zero, struct yb_hash_bytes key, uint64_t asked,
                    uint64_t found, uint64_t now_ns, struct yb_compat_zero_suspect *suspect_out)
{
    struct yb_keyspace_key parsed;
    struct yb_compat_zero_kin *kin;

    YB_ASSERT(found <= asked);
    zero->asked += asked;
    zero->found += found;
    yb_keyspace_parse(key.data, key.length, &parsed);
    if (parsed.engine == YB_KEYSPACE_OTHER || parsed.kin_bytes >= YB_COMPAT_ZERO_TEXT_MAX) {
        return false;
    }
    kin = kin_of(zero, parsed.engine, yb_hash_table(0, key.data, parsed.kin_bytes));
    if (kin == NULL) {
        return false;
    }
    if (found > 0) { /* Z2 */
        kin->asked = 0;
        kin->wait_ns = YB_COMPAT_ZERO_WAIT_MIN;
        return false;
    }
    kin->asked += asked;
    if (kin->asked < YB_COMPAT_ZERO_ASKED_MAX || now_ns < kin->due_ns) {
        return false;
    }
    kin->due_ns = now_ns + kin->wait_ns; /* Z3 */
    kin->wait_ns =
        kin->wait_ns >= YB_COMPAT_ZERO_WAIT_MAX / 2 ? YB_COMPAT_ZERO_WAIT_MAX : 2 * kin->wait_ns;
    *suspect_out = (struct yb_compat_zero_suspect){
        .engine = parsed.engine,
        .asked = kin->asked,
        .prefix_bytes = parsed.kin_bytes,
    };
    memcpy(suspect_out->prefix, key.data, parsed.kin_bytes);
    return true;
}

/* ---- looking -------------------------------------------------------------------------------- */

struct look {
    const struct yb_compat_zero_suspect *suspect;
    uint32_t seen;
    bool any;
    uint32_t key_bytes;
    char key[YB_COMPAT_ZERO_TEXT_MAX];
};

static bool
visit(void *context, const struct yb_client_entry *entry)
{
    struct look *look = context;
    struct yb_keyspace_key parsed;

    yb_keyspace_parse(entry->key, entry->key_bytes, &parsed);
    look->any = parsed.engine == look->suspect->engine;
    if (look->any) {
        look->key_bytes = entry->key_bytes < sizeof(look->key) ? entry->key_bytes : 0;
        memcpy(look->key, entry->key, look->key_bytes);
    }
    return !look->any && ++look->seen < LOOKED_AT;
}

/* Find one key of the same engine that begins in the same way, or, without `prefix`, in any. */
static bool
find_one(struct yb_client *client, const struct yb_compat_zero_suspect *suspect, bool prefix,
         struct look *look)
{
    const struct yb_client_call call = {.struct_bytes = sizeof(call), .timeout_ns = LOOK_NS};
    enum yb_client_match match =
        prefix && suspect->prefix_bytes > 0 ? YB_CLIENT_MATCH_PREFIX : YB_CLIENT_MATCH_ALL;

    *look = (struct look){.suspect = suspect};
    /* What cannot be found out in that time is not told. */
    return yb_client_list(client, match, match == YB_CLIENT_MATCH_ALL ? NULL : suspect->prefix,
                          &call, visit, look) == YB_OK &&
           look->any;
}

static void
tell(struct yb_compat_store *store, const struct look *look, bool same)
{
    const struct yb_compat_zero_suspect *suspect = look->suspect;

    if (same) {
        yb_log_warn(store->log, "store",
                    "no key was found of all that were asked for, while the store holds blocks of "
                    "the same model: if prompts repeat, hashes differ (set PYTHONHASHSEED=0 for "
                    "every vLLM and LMCache process; same block size, hash algorithm and "
                    "tokenizer), or ranks do; `yuebing keyspaces` and `yuebing check engine` "
                    "say more",
                    yb_log_str("engine", yb_keyspace_engine_name(suspect->engine)),
                    yb_log_u64("asked", suspect->asked), yb_log_str("names", suspect->prefix),
                    yb_log_str("held", look->key));
    } else {
        yb_log_warn(store->log, "store",
                    "no key was found of all that were asked for, and the store holds blocks of "
                    "this engine under other names only: model name, prefix or tag differ from "
                    "those of who put them; `yuebing keyspaces` shows them",
                    yb_log_str("engine", yb_keyspace_engine_name(suspect->engine)),
                    yb_log_u64("asked", suspect->asked), yb_log_str("names", suspect->prefix),
                    yb_log_str("held", look->key));
    }
}

void
yb_compat_zero_asked(struct yb_compat_store *store, struct yb_client *client,
                     const yb_compat_key *keys, const int32_t *codes, uint32_t count)
{
    const struct yb_hash_bytes first = {keys[0].iov_base, keys[0].iov_len};
    struct yb_compat_zero_suspect suspect;
    uint64_t now_ns = yb_clock_now(yb_clock_system());
    uint64_t found = 0;
    struct look look;
    bool due, same;

    for (uint32_t i = 0; i < count; i++) {
        if (codes[i] < 0) {
            return; /* What failed says nothing. */
        }
        found += codes[i] == 1;
    }
    yb_lock_acquire(&store->lock);
    due = yb_compat_zero_note(&store->zero, first, count, found, now_ns, &suspect);
    yb_lock_release(&store->lock);
    if (!due) {
        return;
    }
    same = find_one(client, &suspect, true, &look);
    if (same || find_one(client, &suspect, false, &look)) {
        tell(store, &look, same);
        yb_lock_acquire(&store->lock);
        store->zero.told++;
        yb_lock_release(&store->lock);
    }
}

void
yb_compat_store_lookups(struct yb_compat_store *store, struct yb_compat_lookups *lookups_out)
{
    yb_lock_acquire(&store->lock);
    *lookups_out = (struct yb_compat_lookups){
        .asked = store->zero.asked,
        .found = store->zero.found,
        .warned = store->zero.told,
    };
    yb_lock_release(&store->lock);
}
