/* SPDX-License-Identifier: Apache-2.0
 *
 * Move a buffer from one engine to another and read it back.
 *
 *     cc transfer.c $(pkg-config --cflags --libs yuebing) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yuebing/transfer.h>

#define BYTES (8u << 20)

/* Stop with a sentence unless `status` is OK. */
static void
check(enum yb_status status, const char *what)
{
    if (status != YB_OK) {
        fprintf(stderr, "%s: %s\n", what, yb_status_text(status));
        exit(1);
    }
}

/* Move `local` to or from the start of the peer's region, and wait for the end. */
static void
move(struct yb_transfer *engine, yb_transfer_peer peer, yb_transfer_region region,
     enum yb_transfer_op op, void *local)
{
    struct yb_transfer_item item = {.op = op, .local = local, .length = BYTES, .remote = region};
    struct yb_transfer_batch_status status;
    yb_transfer_batch batch;

    check(yb_transfer_submit(engine, peer, &item, 1, NULL, &batch), "submit");
    check(yb_transfer_wait(engine, batch, UINT64_MAX), "wait");
    check(yb_transfer_poll(engine, batch, &status, NULL, 0), "poll");
    check(status.status, op == YB_TRANSFER_WRITE ? "write" : "read");
    check(yb_transfer_release(engine, batch), "release");
}

int
main(void)
{
    struct yb_transfer *here, *there;
    char address[128], message[512] = "";
    char *sent = malloc(BYTES), *kept = calloc(1, BYTES), *back = calloc(1, BYTES);
    yb_transfer_region region;
    yb_transfer_peer peer;

    memset(sent, 'y', BYTES);
    check(yb_transfer_create(NULL, &here, message, sizeof(message)), message);
    check(yb_transfer_create(NULL, &there, message, sizeof(message)), message);
    check(yb_transfer_register(there, kept, BYTES, NULL, &region), "register");
    check(yb_transfer_address(there, address, sizeof(address)), "address");
    check(yb_transfer_open(here, address, &peer), "open");
    move(here, peer, region, YB_TRANSFER_WRITE, sent);
    move(here, peer, region, YB_TRANSFER_READ, back);
    printf("%u bytes there and back: %s\n", BYTES,
           memcmp(sent, back, BYTES) == 0 && memcmp(sent, kept, BYTES) == 0 ? "equal" : "WRONG");
    yb_transfer_destroy(&here);
    yb_transfer_destroy(&there);
    free(sent);
    free(kept);
    free(back);
    return 0;
}
