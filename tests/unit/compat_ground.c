/* SPDX-License-Identifier: Apache-2.0 */
#include "compat_ground.h"

#include <string.h>

#define MIB (1u << 20)

struct yb_compat_setup
setup_of(const struct ground *where)
{
    return (struct yb_compat_setup){
        .local_hostname = "127.0.0.1",
        .metadata_server = "P2PHANDSHAKE",
        .segment_bytes = 32 * MIB,
        .local_buffer_bytes = 16 * MIB,
        .protocol = "tcp",
        .devices = "",
        .master = where->address,
    };
}

struct yb_compat_store *
open_store(const struct ground *where, uint64_t segment_bytes)
{
    struct yb_compat_store *opened = yb_compat_store_create();
    struct yb_compat_setup setup = setup_of(where);

    setup.segment_bytes = segment_bytes;
    assert_non_null(opened);
    assert_int_equal(yb_compat_store_setup(opened, &setup), 0);
    return opened;
}

yb_compat_key
key_of(const char *text)
{
    return (yb_compat_key){.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
}
