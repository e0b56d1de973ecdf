/* SPDX-License-Identifier: Apache-2.0
 *
 * store.h -- the known system's store, as its callers expect it, over our client and node.
 *
 * What `MooncakeDistributedStore` means is decided here, once, and tested in C; bindings convert
 * arguments and nothing else. RULES D has a row for each place where their meaning and ours differ.
 *
 *     create --> [setup | setup_dummy] --> every call --> close --> (destroy)
 *        |                                   |              |
 *        +-- before setup and after close every call returns the code that its comment names
 *
 * Invariants
 *   S1  No call crashes or blocks without end, whatever the arguments, before setup or after close.
 *   S2  A batch's result has one entry for each key, whatever fails.
 *   S3  When a call returns nothing touches the caller's memory any more.
 *   S4  setup returns a code, and never ends the process: a taken port, an unreachable directory.
 *
 * Threads   Every function, any thread, at once; close waits for those that are inside.
 * Memory    Keys and buffers are the caller's, borrowed until the call returns. Buffers may be
 *           memory of a device; whether they were registered changes the speed only.
 * Units     Bytes; codes are those of codes.h; counts are not negative, codes are.
 */
#ifndef YB_COMPAT_STORE_H
#define YB_COMPAT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "compat/codes.h"

struct yb_client_counters;
struct yb_compat_store;
struct yb_compat_engine; /* engine.h */

/* ---- life ---------------------------------------------------------------------------------- */

/* NULL: no memory. */
struct yb_compat_store *yb_compat_store_create(void);
/* As close, and *store is NULL afterwards. */
void yb_compat_store_destroy(struct yb_compat_store **store);

struct yb_compat_setup {
    const char *local_hostname; /* "host" or "host:port", IPv6 in brackets; the segment's name. */
    const char *metadata_server;
    uint64_t segment_bytes;      /* Memory to give to the store: 0 for none. */
    uint64_t local_buffer_bytes; /* For calls that return bytes; 0: they get no bytes. */
    const char *protocol;        /* "tcp", "rdma", "rpc_only", ... */
    const char *devices;
    const char *master;              /* "host:port" of the directory. */
    struct yb_compat_engine *engine; /* To share; NULL: none. Outlives the store. */
    const char *tenant;              /* NULL or "": "default". */
    bool ssd_offload;
    const char *ssd_path;
    bool http_server; /* Answer /health and /metrics ... */
    uint16_t http_port;
};

/* Join, and give the segment. A code on every failure, with the reason in the log: -600 for what
 * is wrong in the arguments, -900 and -901 for a directory that cannot be reached, -601 for the
 * credential. Twice without close: -600. */
int32_t yb_compat_store_setup(struct yb_compat_store *store, const struct yb_compat_setup *setup);

/* Use the node of a `mooncake_client` on this host, "host:port"; memory for values comes from
 * yb_compat_host_alloc(). */
int32_t yb_compat_store_setup_dummy(struct yb_compat_store *store, uint64_t pool_bytes,
                                    uint64_t local_buffer_bytes, const char *server);

/* Leave; what lies in our segment is moved or lost as a draining node's is. 0, also when there is
 * nothing to close. */
int32_t yb_compat_store_close(struct yb_compat_store *store);

/* 0 healthy; 1 not set up; 2 the directory does not answer. */
int32_t yb_compat_store_health(struct yb_compat_store *store);

/* "host:port" under which our segment is known; "" before setup. Returns the length it takes. */
size_t yb_compat_store_hostname(struct yb_compat_store *store, char *text_out, size_t room);

/* ---- keys ---------------------------------------------------------------------------------- */

/* A key of any bytes: base and length. */
typedef struct iovec yb_compat_key;

/* A value: what its pieces hold, one after the other. */
struct yb_compat_value {
    const struct iovec *pieces;
    uint32_t count;
};

/* For each key 1, 0 or a code; what is there is held for the lease's time (RULES D1). A key that
 * cannot be is not there. Not set up: -600 each. */
void yb_compat_store_exist(struct yb_compat_store *store, const yb_compat_key *keys, uint32_t count,
                           int32_t *codes_out);

/* How often keys were asked for, ever, how often they were there, and how often the log was told
 * that none of very many ever is (zero.h). */
struct yb_compat_lookups {
    uint64_t asked;
    uint64_t found;
    uint64_t warned;
};
/* What its client has done since setup; false, and all zero, if it is not set up. */
bool yb_compat_store_counters(struct yb_compat_store *store,
                              struct yb_client_counters *counters_out);

void yb_compat_store_lookups(struct yb_compat_store *store, struct yb_compat_lookups *lookups_out);

/* Bytes of the value, or a code. */
int64_t yb_compat_store_size(struct yb_compat_store *store, const yb_compat_key *key);

/* 0 or a code for each: -704, -706 (held, and not forced). */
void yb_compat_store_remove(struct yb_compat_store *store, const yb_compat_key *keys,
                            uint32_t count, bool force, int32_t *codes_out);

/* How many were removed, or a code. `pattern` is a regular expression, found anywhere in
 * the key: those of the known package (ECMAScript's) are ones of PCRE2's, which the store takes.
 * -600: it is none. */
int64_t yb_compat_store_remove_regex(struct yb_compat_store *store, const char *pattern,
                                     bool force);
int64_t yb_compat_store_remove_all(struct yb_compat_store *store, bool force);

/* ---- put ----------------------------------------------------------------------------------- */

enum yb_compat_soft_pin {
    YB_COMPAT_SOFT_PIN_PRESERVE,
    YB_COMPAT_SOFT_PIN_ENABLE,
    YB_COMPAT_SOFT_PIN_DISABLE,
};

/* `ReplicateConfig`. Fill it with yb_compat_replicate_default() first. */
struct yb_compat_replicate {
    int64_t replica_num;
    int64_t nof_replica_num;
    int64_t dfs_replica_num;
    uint32_t soft_pin_action; /* enum yb_compat_soft_pin */
    bool soft_pin_has_ttl;
    uint64_t soft_pin_ttl_ms;
    bool hard_pin;
    bool same_node;
    const char *const *preferred; /* Names of segments in order; NULL-terminated; NULL: none. */
    const yb_compat_key *groups;  /* One for each key; NULL: none. */
    uint32_t group_count;
};
void yb_compat_replicate_default(struct yb_compat_replicate *replicate_out);

/* How the known calls differ (RULES D10, python-api B.4). */
enum yb_compat_put {
    YB_COMPAT_PUT_VALUE,   /* put, put_parts: copies; an empty value is -600. */
    YB_COMPAT_PUT_PARTS,   /* ... an empty value is 0, and nothing is stored. */
    YB_COMPAT_PUT_BATCH,   /* put_batch: of equal keys the first counts. */
    YB_COMPAT_PUT_FROM,    /* put_from: an empty value is 0, and nothing is stored. */
    YB_COMPAT_PUT_BUFFERS, /* batch_put_from: of equal keys the last counts; an empty value is
                            * -600. */
    YB_COMPAT_PUT_PIECES,  /* ..._multi_buffers, sessions: of equal keys the first counts; an empty
                            * value is -600; one node may be preferred. */
};

/* 0 or a code for each key. A value that is there already is left as it is, and that is 0; with
 * `upsert` it is replaced. `replicate` may be NULL. Not set up: -600 each. */
struct yb_compat_put_call {
    enum yb_compat_put kind;
    bool upsert;
    const struct yb_compat_replicate *replicate;
};
void yb_compat_store_put(struct yb_compat_store *store, const yb_compat_key *keys,
                         const struct yb_compat_value *values, uint32_t count,
                         const struct yb_compat_put_call *call, int32_t *codes_out);

/* ---- get ----------------------------------------------------------------------------------- */

/* Bytes of the value, or a code, for each: -704 not there, -600 the pieces are too small. Larger
 * pieces are fine. */
void yb_compat_store_get_into(struct yb_compat_store *store, const yb_compat_key *keys,
                              const struct yb_compat_value *into, uint32_t count,
                              int64_t *codes_out);

/* A value in memory of the library's. */
struct yb_compat_buffer {
    void *data; /* NULL: not got. */
    uint64_t bytes;
    int32_t code;
};
void yb_compat_store_get(struct yb_compat_store *store, const yb_compat_key *keys, uint32_t count,
                         struct yb_compat_buffer *buffers_out);
/* Give one back; it may outlive the store. */
void yb_compat_buffer_free(struct yb_compat_buffer *buffer);

/* One piece of get_into_ranges: bytes [source, source + bytes) of keys[key] to `into`. */
struct yb_compat_range {
    uint32_t key; /* Index. */
    void *into;
    uint64_t source;
    uint64_t bytes;
    int64_t code_out; /* Bytes, or a code. */
};
/* Every range ends alone; a key's value is looked up once however many ranges it has. */
void yb_compat_store_get_ranges(struct yb_compat_store *store, const yb_compat_key *keys,
                                uint32_t key_count, struct yb_compat_range *ranges, uint32_t count);

/* ---- memory -------------------------------------------------------------------------------- */

/* 0; -600 for NULL or nothing; -7 for a range that equals or overlaps a registered one. */
int32_t yb_compat_store_register(struct yb_compat_store *store, void *base, uint64_t bytes);
int32_t yb_compat_store_unregister(struct yb_compat_store *store, void *base);
/* How many bytes from `address` on lie in one registered range; 0: none. */
uint64_t yb_compat_store_registered(struct yb_compat_store *store, const void *address);

/* Memory that processes of this host can share, for `MooncakeHostMemAllocator`; NULL: none left. */
void *yb_compat_host_alloc(uint64_t bytes);
/* 0, or -600 for what is not such memory. */
int32_t yb_compat_host_free(void *base);

/* ---- sessions (RULES D3) ------------------------------------------------------------------- */

/* 0 or a code for each: pins one replica in memory for the lease's time, which reads renew. */
void yb_compat_store_get_session_start(struct yb_compat_store *store, const yb_compat_key *keys,
                                       uint32_t count, int32_t *codes_out);
/* Ranges of keys with a session: no directory is asked. sources[i][j] is the offset in the value of
 * into[i].pieces[j]. Bytes or a code for each key: -600 no session, -707 its lease is over. */
void yb_compat_store_get_session_read(struct yb_compat_store *store, const yb_compat_key *keys,
                                      const struct yb_compat_value *into,
                                      const uint64_t *const *sources, uint32_t count,
                                      int64_t *codes_out);
/* 0; -1 when not set up. Unknown keys are fine. */
int32_t yb_compat_store_get_session_end(struct yb_compat_store *store, const yb_compat_key *keys,
                                        uint32_t count);

/* 0 or a code for each: room for a value of that size; -705 it is there, -600 a session is open. */
void yb_compat_store_put_session_start(struct yb_compat_store *store, const yb_compat_key *keys,
                                       const uint64_t *sizes, uint32_t count,
                                       const struct yb_compat_replicate *replicate,
                                       int32_t *codes_out);
void yb_compat_store_put_session_write(struct yb_compat_store *store, const yb_compat_key *keys,
                                       const struct yb_compat_value *from,
                                       const uint64_t *const *targets, uint32_t count,
                                       int64_t *codes_out);
/* 0 or a code for each; a failure keeps the session for another try, or for revoke. */
void yb_compat_store_put_session_end(struct yb_compat_store *store, const yb_compat_key *keys,
                                     uint32_t count, int32_t *codes_out);
void yb_compat_store_put_session_revoke(struct yb_compat_store *store, const yb_compat_key *keys,
                                        uint32_t count, int32_t *codes_out);

/* ---- replicas ------------------------------------------------------------------------------ */

struct yb_compat_replica {
    char segment[64];  /* Name of the node. */
    char endpoint[64]; /* Its address. */
    uint64_t bytes;
    uint32_t key;  /* Index of the key. */
    bool memory;   /* Or on a disk. */
    bool complete; /* Or still being written. */
};
/* Write the replicas of all keys, at most `room`; returns how many there are. */
uint32_t yb_compat_store_replicas(struct yb_compat_store *store, const yb_compat_key *keys,
                                  uint32_t count, struct yb_compat_replica *replicas_out,
                                  uint32_t room);
/* Drop the replicas on `segment` ("": on all). 0 for each key that was dropped, or a code. */
void yb_compat_store_replica_clear(struct yb_compat_store *store, const yb_compat_key *keys,
                                   uint32_t count, const char *segment, int32_t *codes_out);

/* Copy, or move, a value to another segment; the task runs on. 0 or a code: -704, -600 unknown
 * segment. `source` NULL: a copy. */
int32_t yb_compat_store_task(struct yb_compat_store *store, const yb_compat_key *key,
                             const char *source, const char *const *targets, uint64_t id_out[2]);
enum yb_compat_task_state {
    YB_COMPAT_TASK_PENDING,
    YB_COMPAT_TASK_PROCESSING,
    YB_COMPAT_TASK_SUCCESS,
    YB_COMPAT_TASK_FAILED,
};
struct yb_compat_task {
    uint64_t id[2];
    bool move;
    enum yb_compat_task_state state;
    uint64_t created_ms; /* Since 1970. */
    uint64_t updated_ms;
    char message[128];
};
/* 0, or -1400. */
int32_t yb_compat_store_task_query(struct yb_compat_store *store, const uint64_t id[2],
                                   struct yb_compat_task *task_out);

/* ---- segments given by hand ---------------------------------------------------------------- */

/* Give `bytes` more to the store, under a name that *name_out gets. 0 or a code. */
int32_t yb_compat_store_mount(struct yb_compat_store *store, uint64_t bytes, char name_out[64]);
/* Take it back: its blocks are moved within `grace_ms`, as far as others have room. */
int32_t yb_compat_store_unmount(struct yb_compat_store *store, const char *name, uint64_t grace_ms);

#endif /* YB_COMPAT_STORE_H */
