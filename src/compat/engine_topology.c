/* SPDX-License-Identifier: Apache-2.0
 *
 * Which network adapters are near which memory, as the known system writes it:
 *
 *     {"cpu:0": [["mlx5_0"], ["mlx5_1"]], ...}      preferred ones, and the others
 *
 * We move bytes over TCP and shared memory and choose no adapter, so this is for callers that look.
 */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compat/engine_internal.h"

#define ADAPTERS   "/sys/class/infiniband"
#define NODES      "/sys/devices/system/node"
#define MOST       64u
#define NAME_BYTES 64u
#define NO_NODE    (-1)

struct adapter {
    char name[NAME_BYTES];
    int node;
};

/* Whether a comma-separated list names it; an empty list names all. */
static bool
is_wanted(const char *devices, const char *name)
{
    size_t length = strlen(name);

    if (devices == NULL || devices[0] == '\0') {
        return true;
    }
    for (const char *at = devices; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

static int
node_of(const char *adapter)
{
    char path[256];
    int node = NO_NODE;
    FILE *file;

    (void)snprintf(path, sizeof(path), ADAPTERS "/%s/device/numa_node", adapter);
    file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%d", &node) != 1) {
            node = NO_NODE;
        }
        (void)fclose(file);
    }
    return node;
}

static unsigned
find_adapters(const char *devices, struct adapter adapters_out[MOST])
{
    DIR *folder = opendir(ADAPTERS);
    const struct dirent *entry;
    unsigned count = 0;

    while (folder != NULL && count < MOST && (entry = readdir(folder)) != NULL) {
        struct adapter *adapter = &adapters_out[count];

        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= NAME_BYTES ||
            !is_wanted(devices, entry->d_name)) {
            continue;
        }
        memcpy(adapter->name, entry->d_name, strlen(entry->d_name) + 1);
        adapter->node = node_of(adapter->name);
        count++;
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return count;
}

/* One row: adapters of the node, and the others; without a node they are all alike. */
static json_t *
row_of(const struct adapter *adapters, unsigned count, int node)
{
    json_t *preferred = json_array();
    json_t *others = json_array();

    for (unsigned i = 0; i < count; i++) {
        bool near = node == NO_NODE || adapters[i].node == node;

        (void)json_array_append_new(near ? preferred : others, json_string(adapters[i].name));
    }
    return json_pack("[o, o]", preferred, others);
}

static void
add_devices(const struct yb_compat_engine *engine, const struct adapter *adapters, unsigned count,
            json_t *rows)
{
    char *text = NULL;
    json_t *known = NULL;
    char name[32];

    if (yb_compat_engine_ready(engine) && yb_transfer_topology(engine->transfer, &text) == YB_OK) {
        known = json_loads(text, 0, NULL);
    }
    for (int i = 0; i < (int)json_integer_value(json_object_get(known, "devices")); i++) {
        (void)snprintf(name, sizeof(name), "cuda:%d", i);
        (void)json_object_set_new(rows, name, row_of(adapters, count, NO_NODE));
    }
    json_decref(known);
    free(text);
}

char *
yb_compat_engine_topology(const struct yb_compat_engine *engine, const char *devices)
{
    struct adapter adapters[MOST];
    unsigned count = find_adapters(devices, adapters);
    DIR *folder = opendir(NODES);
    const struct dirent *entry;
    json_t *rows = json_object();
    char *text;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char name[32];
        int node;
        char rest;

        if (sscanf(entry->d_name, "node%d%c", &node, &rest) == 1) {
            (void)snprintf(name, sizeof(name), "cpu:%d", node);
            (void)json_object_set_new(rows, name, row_of(adapters, count, node));
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    if (json_object_size(rows) == 0) {
        (void)json_object_set_new(rows, "cpu:0", row_of(adapters, count, NO_NODE));
    }
    add_devices(engine, adapters, count, rows);
    text = rows != NULL ? json_dumps(rows, JSON_INDENT(4) | JSON_SORT_KEYS) : NULL;
    json_decref(rows);
    return text;
}
