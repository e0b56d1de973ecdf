/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.h -- the known system's transfer engine, as its callers expect it, over transfer.h.
 *
 * Invariants
 *   E1  initialize returns -1 on every failure, with the reason in the log; never ends the process.
 *   E2  Every call before initialize returns its failure code.
 *   E3  A peer is opened once per name. After it was lost the next call connects anew, so that a
 *       restarted peer is reached again.
 *
 * Threads   Every function, any thread, at once; a dozen threads write through one engine.
 * Memory    Borrowed until the call returns; of the asynchronous form until its end was told.
 * Units     Bytes. A call ends after MC_TRANSFER_TIMEOUT seconds (30; at least 5) and 1 ns a byte.
 */
#ifndef YB_COMPAT_ENGINE_H
#define YB_COMPAT_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct yb_compat_engine;
struct yb_transfer;

/* NULL: no memory. */
struct yb_compat_engine *yb_compat_engine_create(void);
void yb_compat_engine_destroy(struct yb_compat_engine **engine);

struct yb_compat_engine_options {
    const char *local_hostname;  /* "host", "host:port"; IPv6 in brackets. Also ":npu_0" behind. */
    const char *metadata_server; /* "P2PHANDSHAKE", "http://...", "redis://...", "etcd://...". */
    const char *protocol;        /* "tcp", "rdma", ... "xgmi" is refused. */
    const char *devices;
    const char *metadata_type; /* NULL, or that of initialize_ext. */
};
/* 0 or -1. With P2PHANDSHAKE a port of 15000..17000 (MC_MIN_RPC_PORT, MC_MAX_RPC_PORT) is taken. */
int32_t yb_compat_engine_initialize(struct yb_compat_engine *engine,
                                    const struct yb_compat_engine_options *options);
/* 0 before initialize. */
uint16_t yb_compat_engine_port(const struct yb_compat_engine *engine);
/* "host:port", to give to peers. Returns the length that it takes. */
size_t yb_compat_engine_name(const struct yb_compat_engine *engine, char *text_out, size_t room);
/* Ours below; NULL before initialize. */
struct yb_transfer *yb_compat_engine_transfer(struct yb_compat_engine *engine);

/* 0; -7 for a range that equals or overlaps a registered one; -3 unregister of what is not
 * registered; -1. Of several: all, or none and the code of the first that failed. */
int32_t yb_compat_engine_register(struct yb_compat_engine *engine, const uint64_t *addresses,
                                  const uint64_t *lengths, uint32_t count, const char *location);
int32_t yb_compat_engine_unregister(struct yb_compat_engine *engine, const uint64_t *addresses,
                                    uint32_t count);

/* A notification: any bytes. */
struct yb_compat_notify {
    const char *name;
    const char *text;
    size_t name_bytes;
    size_t text_bytes;
};

struct yb_compat_move {
    const char *target; /* The peer's name. */
    bool write;
    const uint64_t *local;  /* Addresses here, ... */
    const uint64_t *remote; /* ... there, ... */
    const uint64_t *lengths;
    uint32_t count;
    const struct yb_compat_notify *notify; /* Delivered after the data; NULL: none. */
};
/* 0, or -1. */
int32_t yb_compat_engine_move(struct yb_compat_engine *engine, const struct yb_compat_move *move);

/* A number for the batch, or 0. */
uint64_t yb_compat_engine_submit(struct yb_compat_engine *engine,
                                 const struct yb_compat_move *move);
/* 1 done, -1 failed (both give the number back), 0 it runs, -2 its time is over. */
int32_t yb_compat_engine_check(struct yb_compat_engine *engine, uint64_t batch);
/* Wait for all: 0, or -1; gives all the numbers back. */
int32_t yb_compat_engine_wait(struct yb_compat_engine *engine, const uint64_t *batches,
                              uint32_t count);

/* The oldest notification: its texts are the caller's to free(). False: there is none. */
struct yb_compat_notified {
    char *name;
    char *text;
    size_t name_bytes;
    size_t text_bytes;
};
bool yb_compat_engine_next_notify(struct yb_compat_engine *engine,
                                  struct yb_compat_notified *notified_out);

/* 0: it answers; otherwise not. */
int32_t yb_compat_engine_probe(struct yb_compat_engine *engine, const char *target);
/* Address of the peer's first registered range; 0: none. */
uint64_t yb_compat_engine_first_address(struct yb_compat_engine *engine, const char *target);

/* Memory that is registered already; 0: none left. */
uint64_t yb_compat_engine_buffer_alloc(struct yb_compat_engine *engine, uint64_t bytes);
int32_t yb_compat_engine_buffer_free(struct yb_compat_engine *engine, uint64_t address);

/* JSON, the caller's to free(); NULL: no memory. */
char *yb_compat_engine_topology(const struct yb_compat_engine *engine, const char *devices);

#endif /* YB_COMPAT_ENGINE_H */
