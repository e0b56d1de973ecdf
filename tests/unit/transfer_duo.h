/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer_duo.h -- two engines in one process, memory with guards around it, and a relay.
 *
 * Every byte of a test's memory is a function of a seed and its offset, so that any of them can
 * be checked without a copy. Which paths a program tests is the word in argv[1].
 *
 * Threads   The test's, except the relay's own thread.
 */
#ifndef YB_TESTS_TRANSFER_DUO_H
#define YB_TESTS_TRANSFER_DUO_H

#include <stdbool.h>
#include <string.h>

#include "unit.h"
#include "yuebing/transfer.h"

#define SECOND_NS   UINT64_C(1000000000)
#define MS_NS       UINT64_C(1000000)
#define ASK_TRIES   20u              /* Of what ends with a handshake that took too long. */
#define PATIENCE_NS (60 * SECOND_NS) /* For what takes milliseconds on an idle machine. */

/* ---- paths --------------------------------------------------------------------------- */

/* One row per way that the whole program can be run over. */
struct duo_row {
    const char *name;
    uint32_t paths;
};

extern uint32_t duo_paths; /* Of the row that was named; TCP without one. */

/* Choose the row. Returns false if argv names none. */
bool duo_choose(int argc, char **argv);
/* Skip the test unless all bytes go by TCP, that is through a relay where there is one. */
void duo_relayed(void);

/* ---- memory -------------------------------------------------------------------------- */

struct area {
    uint8_t *raw;
    uint8_t *bytes; /* Between the guards. */
    size_t length;
};

void area_init(struct area *area, size_t length);
/* Check the guards and free. */
void area_fini(struct area *area);
void area_expect_guards(const struct area *area);

/* The byte at `offset` of pattern `seed`. */
static inline uint8_t
pattern(uint64_t seed, uint64_t offset)
{
    uint64_t mixed =
        (offset + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ seed * UINT64_C(0xd6e8feb86659fd93);

    return (uint8_t)(mixed >> 56 ^ mixed >> 24);
}

void fill(uint8_t *bytes, size_t length, uint64_t seed);
/* Return the offset of the first byte that is not of the pattern, or `length`. */
size_t differs(const uint8_t *bytes, size_t length, uint64_t seed);
void expect_pattern(const uint8_t *bytes, size_t length, uint64_t seed);
/* Whether all bytes are `value`. */
bool all_are(const uint8_t *bytes, size_t length, uint8_t value);

/* ---- engines ------------------------------------------------------------------------- */

struct duo {
    struct yb_transfer *here;
    struct yb_transfer *there;
    char address[64]; /* Of `there`. */
    yb_transfer_peer peer;
};

struct yb_transfer_options duo_options(void);
struct yb_transfer *duo_engine(const struct yb_transfer_options *options);
void duo_init(struct duo *duo);
void duo_init_with(struct duo *duo, const struct yb_transfer_options *here,
                   const struct yb_transfer_options *there);
void duo_fini(struct duo *duo);

yb_transfer_peer duo_open(struct yb_transfer *engine, const char *address);
yb_transfer_region duo_register(struct yb_transfer *engine, const struct area *area);
struct yb_id duo_identity(struct yb_transfer *asker, yb_transfer_peer peer);

/* An item that moves all of `local` to or from the start of a region. */
struct yb_transfer_item duo_item(enum yb_transfer_op op, const struct area *local,
                                 yb_transfer_region remote);

/* Submit, which must be accepted. */
yb_transfer_batch duo_submit(const struct duo *duo, const struct yb_transfer_item *items,
                             uint32_t count, const struct yb_transfer_batch_options *options);
/* Wait for the end, look, release. `statuses` may be NULL. */
struct yb_transfer_batch_status duo_end(struct yb_transfer *engine, yb_transfer_batch batch,
                                        struct yb_transfer_item_status *statuses, uint32_t room);
/* All of it. */
struct yb_transfer_batch_status duo_run(const struct duo *duo, const struct yb_transfer_item *items,
                                        uint32_t count,
                                        const struct yb_transfer_batch_options *options,
                                        struct yb_transfer_item_status *statuses);

/* Cut the unix sockets of all engines of this process: shared memory is gone for a while. */
void duo_cut_shm(void);

/* ---- holding an engine up ------------------------------------------------------------- */

/* Stop the only worker of an engine, by a callback of a batch, until it is let go. */
struct stall;
struct stall *stall_begin(struct yb_transfer *engine, yb_transfer_peer peer);
void stall_end(struct stall **stall);

/* Let time pass where nothing can be waited for. */
void pause_ms(uint32_t ms);

#endif /* YB_TESTS_TRANSFER_DUO_H */
