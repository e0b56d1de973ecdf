/* SPDX-License-Identifier: Apache-2.0
 *
 * Put a block into a store, read it back, and remove it.
 *
 *     yuebing serve &
 *     cc store.c $(pkg-config --cflags --libs yuebing) && ./a.out [HOST:PORT]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yuebing/client.h>

#define BYTES (1u << 20)

/* Stop with a sentence unless `status` is OK. */
static void
check(enum yb_status status, const char *what)
{
    if (status != YB_OK) {
        fprintf(stderr, "%s: %s\n", what, yb_status_text(status));
        exit(1);
    }
}

int
main(int argc, char **argv)
{
    struct yb_client_options options = {.struct_bytes = sizeof(options),
                                        .directory = argc > 1 ? argv[1] : NULL};
    char *sent = malloc(BYTES), *back = calloc(1, BYTES), message[512] = "";
    struct iovec from = {.iov_base = sent, .iov_len = BYTES};
    struct iovec to = {.iov_base = back, .iov_len = BYTES};
    struct yb_client_item item = {.key = "greeting", .key_bytes = 8, .iov_count = 1};
    struct yb_client *client;

    memset(sent, 'y', BYTES);
    check(yb_client_open(&options, 0, &client, message, sizeof(message)), message);
    item.iov = &from;
    check(yb_client_put(client, &item, 1, NULL), "put");
    check(item.status, "put");
    item.iov = &to;
    check(yb_client_get(client, &item, 1, NULL), "get");
    check(item.status, "get");
    printf("%u bytes there and back: %s\n", BYTES,
           memcmp(sent, back, BYTES) == 0 ? "equal" : "WRONG");
    check(yb_client_remove(client, &item, 1, NULL), "remove");
    check(item.status, "remove");
    yb_client_close(&client);
    free(sent);
    free(back);
    return 0;
}
