/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/object/name.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

#define NUMBER_DIGITS 16u

_Static_assert(3 * YB_OBJECT_TENANT_MAX + 128 > YB_OBJECT_NAME_MAX,
               "a long tenant of odd letters does not fit, and is refused");

/* ---- writing --------------------------------------------------------------------------------- */

static bool
is_plain(char letter, bool first)
{
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || (!first && (letter == '-' || letter == '.'));
}

static bool
put(char text_out[YB_OBJECT_NAME_MAX], size_t *used, const char *more)
{
    size_t length = strlen(more);

    if (*used + length >= YB_OBJECT_NAME_MAX) {
        return false;
    }
    memcpy(text_out + *used, more, length + 1);
    *used += length;
    return true;
}

static bool
put_tenant(char text_out[YB_OBJECT_NAME_MAX], size_t *used, const char *tenant)
{
    bool fits = strlen(tenant) <= YB_OBJECT_TENANT_MAX;

    if (tenant[0] == '\0') {
        return put(text_out, used, "_");
    }
    for (const char *at = tenant; fits && *at != '\0'; at++) {
        char piece[4];

        (void)snprintf(piece, sizeof(piece), is_plain(*at, at == tenant) ? "%c" : "_%02x",
                       (unsigned char)*at);
        fits = put(text_out, used, piece);
    }
    return fits;
}

static bool
put_number(char text_out[YB_OBJECT_NAME_MAX], size_t *used, const char *before, uint64_t number)
{
    char piece[32];

    (void)snprintf(piece, sizeof(piece), "%s%016" PRIx64, before, number);
    return put(text_out, used, piece);
}

static bool
put_hash(char text_out[YB_OBJECT_NAME_MAX], size_t *used, struct yb_id hash)
{
    char hex[33];

    yb_id_format(hash, hex);
    return put(text_out, used, "/") && put(text_out, used, hex);
}

static bool
put_block(char text_out[YB_OBJECT_NAME_MAX], size_t *used, const struct yb_object_name *name)
{
    char piece[64];

    (void)snprintf(piece, sizeof(piece), "-%" PRIx64 "-%x%x%03x", name->size, name->mode & 15u,
                   name->replicas & 15u, name->flags & 0xfffu);
    if (!put_hash(text_out, used, name->hash) || !put_number(text_out, used, "/", name->grant) ||
        !put(text_out, used, piece)) {
        return false;
    }
    (void)snprintf(piece, sizeof(piece), "-%x", name->expires_unix_s);
    return name->expires_unix_s == 0 || put(text_out, used, piece);
}

static bool
put_pack(char text_out[YB_OBJECT_NAME_MAX], size_t *used, const struct yb_object_name *name)
{
    char piece[32];

    (void)snprintf(piece, sizeof(piece), "-%x", name->footer_bytes);
    return put_number(text_out, used, "/pack/", name->writer) &&
           put_number(text_out, used, "", name->number) && put(text_out, used, piece);
}

static enum yb_status
put_cluster(char text_out[YB_OBJECT_NAME_MAX], const struct yb_object_name *name)
{
    char cluster[33], seed[33];

    yb_id_format(name->cluster, cluster);
    yb_id_format(name->seed, seed);
    (void)snprintf(text_out, YB_OBJECT_NAME_MAX, YB_OBJECT_CLUSTER_ROOT "%s/%s/%016" PRIx64,
                   cluster, seed, name->epoch);
    return YB_OK;
}

enum yb_status
yb_object_name_format(const struct yb_object_name *name, char text_out[YB_OBJECT_NAME_MAX])
{
    size_t used = 0;
    bool fits = true;

    text_out[0] = '\0';
    if (name->kind == YB_OBJECT_IS_CLUSTER) {
        return put_cluster(text_out, name);
    }
    if (name->kind == YB_OBJECT_IS_FLUSH) {
        fits = put(text_out, &used, YB_OBJECT_FLUSH_ROOT);
    } else if (name->kind == YB_OBJECT_IS_KILL) {
        fits = put(text_out, &used, YB_OBJECT_KILL_ROOT);
    }
    fits = fits && put_tenant(text_out, &used, name->tenant);
    switch (name->kind) {
    case YB_OBJECT_IS_BLOCK:
        fits = fits && put_number(text_out, &used, "/", name->flush) &&
               put_block(text_out, &used, name);
        break;
    case YB_OBJECT_IS_PACK:
        fits = fits && put_number(text_out, &used, "/", name->flush) &&
               put_pack(text_out, &used, name);
        break;
    case YB_OBJECT_IS_FLUSH:
    case YB_OBJECT_IS_CLUSTER: /* It is above. */
        fits = fits && put_number(text_out, &used, "/", name->flush);
        break;
    case YB_OBJECT_IS_KILL:
        fits = fits && put_number(text_out, &used, "/", name->flush) &&
               put_hash(text_out, &used, name->hash) &&
               put_number(text_out, &used, "/", name->grant);
        break;
    }
    return fits ? YB_OK : YB_TOO_LARGE;
}

enum yb_status
yb_object_name_prefix(const char *tenant, uint64_t flush, const struct yb_id *hash,
                      char text_out[YB_OBJECT_NAME_MAX])
{
    size_t used = 0;

    text_out[0] = '\0';
    if (!put_tenant(text_out, &used, tenant) || !put_number(text_out, &used, "/", flush) ||
        (hash != NULL && !put_hash(text_out, &used, *hash)) || !put(text_out, &used, "/")) {
        return YB_TOO_LARGE;
    }
    return YB_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int
digit(char letter)
{
    return letter >= '0' && letter <= '9'   ? letter - '0'
           : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
                                            : -1;
}

/* Read 1 .. 16 digits, or exactly `exact`, and move on. */
static bool
take_number(const char **at, uint32_t exact, uint64_t *number_out)
{
    uint64_t number = 0;
    uint32_t count = 0;

    while (count < NUMBER_DIGITS && (exact == 0 || count < exact) && digit((*at)[count]) >= 0) {
        number = number << 4 | (uint64_t)digit((*at)[count]);
        count++;
    }
    if (count == 0 || (exact != 0 && count != exact) ||
        (exact == 0 && (*at)[0] == '0' && count > 1)) {
        return false;
    }
    *at += count;
    *number_out = number;
    return true;
}

static bool
take(const char **at, const char *text)
{
    size_t length = strlen(text);

    if (strncmp(*at, text, length) != 0) {
        return false;
    }
    *at += length;
    return true;
}

static bool
take_tenant(const char **at, char tenant_out[YB_OBJECT_TENANT_MAX + 1])
{
    size_t count = 0;

    if (**at == '_' && (*at)[1] == '/') { /* That of no name. */
        (*at)++;
    }
    while (**at != '/') {
        char letter = **at;

        if (count == YB_OBJECT_TENANT_MAX) {
            return false;
        }
        if (letter == '_') {
            int high = digit((*at)[1]);
            int low = high < 0 ? -1 : digit((*at)[2]);

            if (low < 0) {
                return false;
            }
            letter = (char)(high << 4 | low);
            if (letter == '\0' || is_plain(letter, count == 0)) {
                return false; /* Each tenant has one way to be written. */
            }
            *at += 2;
        } else if (!is_plain(letter, count == 0)) {
            return false;
        }
        tenant_out[count++] = letter;
        (*at)++;
    }
    tenant_out[count] = '\0';
    return true;
}

static bool
take_hash(const char **at, struct yb_id *hash_out)
{
    char hex[33];

    for (uint32_t i = 0; i < 32; i++) {
        if (digit((*at)[i]) < 0) {
            return false;
        }
        hex[i] = (*at)[i];
    }
    hex[32] = '\0';
    *at += 32;
    return yb_id_parse(hex, hash_out);
}

static bool
take_block(const char **at, struct yb_object_name *name)
{
    uint64_t kind, expires = 0;

    if (!take_hash(at, &name->hash) || !take(at, "/") ||
        !take_number(at, NUMBER_DIGITS, &name->grant) || !take(at, "-") ||
        !take_number(at, 0, &name->size) || !take(at, "-") || !take_number(at, 5, &kind)) {
        return false;
    }
    if (**at == '-' &&
        (!take(at, "-") || !take_number(at, 0, &expires) || expires == 0 || expires > UINT32_MAX)) {
        return false;
    }
    name->expires_unix_s = (uint32_t)expires;
    name->mode = (uint8_t)(kind >> 16);
    name->replicas = (uint8_t)(kind >> 12 & 15);
    name->flags = (uint16_t)(kind & 0xfff);
    return name->grant != 0;
}

static bool
take_pack(const char **at, struct yb_object_name *name)
{
    uint64_t footer;

    if (!take_number(at, NUMBER_DIGITS, &name->writer) ||
        !take_number(at, NUMBER_DIGITS, &name->number) || !take(at, "-") ||
        !take_number(at, 0, &footer) || footer > UINT32_MAX) {
        return false;
    }
    name->footer_bytes = (uint32_t)footer;
    return true;
}

bool
yb_object_name_parse(const char *text, struct yb_object_name *name_out)
{
    const char *at = text;
    struct yb_object_name name = {.kind = YB_OBJECT_IS_BLOCK};
    bool right;

    if (take(&at, YB_OBJECT_FLUSH_ROOT)) {
        name.kind = YB_OBJECT_IS_FLUSH;
        right = take_tenant(&at, name.tenant) && take(&at, "/") &&
                take_number(&at, NUMBER_DIGITS, &name.flush);
    } else if (take(&at, YB_OBJECT_KILL_ROOT)) {
        name.kind = YB_OBJECT_IS_KILL;
        right = take_tenant(&at, name.tenant) && take(&at, "/") &&
                take_number(&at, NUMBER_DIGITS, &name.flush) && take(&at, "/") &&
                take_hash(&at, &name.hash) && take(&at, "/") &&
                take_number(&at, NUMBER_DIGITS, &name.grant);
    } else if (take(&at, YB_OBJECT_CLUSTER_ROOT)) {
        name.kind = YB_OBJECT_IS_CLUSTER;
        right = take_hash(&at, &name.cluster) && take(&at, "/") && take_hash(&at, &name.seed) &&
                take(&at, "/") && take_number(&at, NUMBER_DIGITS, &name.epoch) && name.epoch != 0;
    } else {
        right = take_tenant(&at, name.tenant) && take(&at, "/") &&
                take_number(&at, NUMBER_DIGITS, &name.flush) && take(&at, "/");
        if (right && take(&at, "pack/")) {
            name.kind = YB_OBJECT_IS_PACK;
            right = take_pack(&at, &name);
        } else {
            right = right && take_block(&at, &name);
        }
    }
    if (right && *at == '\0') {
        *name_out = name;
    }
    return right && *at == '\0';
}
