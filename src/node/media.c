/* SPDX-License-Identifier: Apache-2.0 */
#include "node/media.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "tier/object/claim.h"
#include "tier/object/object.h"
#include "tier/ssd/ssd.h"

#define FORMAT        "yuebing node"
#define VERSION       1
#define NAME_BYTES    64u
#define SEGMENTS_MANY 16u /* Into so many segments a small log is cut. */
#define SEGMENT_MAX   (256ull << 20)
#define CLAIM_NS      (30 * YB_NS_PER_S)

struct yb_media {
    struct yb_media_options options; /* Its strings are owned copies. */
    char *data_dir;
    char *object_store;
    char *ssd_io;
    char name[NAME_BYTES];
    struct yb_id id;
    char label[33]; /* The id; "": there is no folder. */
    int lock_fd;    /* -1: there is no folder. */
    struct yb_node_tier tiers[YB_NODE_TIERS_MAX];
    uint32_t tier_count;
    struct yb_object_claim *claim; /* Of the object store; NULL: none is under way. */
};

/* ---- the folder ------------------------------------------------------------------------------ */

static void
path_of(const struct yb_media *media, const char *what, char path_out[PATH_MAX])
{
    (void)snprintf(path_out, PATH_MAX, "%s/%s", media->data_dir, what);
}

static enum yb_status
lock_folder(struct yb_media *media, char *why_out, size_t why_bytes)
{
    char path[PATH_MAX];

    if (mkdir(media->data_dir, 0700) != 0 && errno != EEXIST) {
        (void)snprintf(why_out, why_bytes,
                       "node.data_dir: the folder %s cannot be made: %s; make the one it is to be "
                       "in, or let this user write there",
                       media->data_dir, strerror(errno));
        return YB_IO;
    }
    path_of(media, "lock", path);
    media->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (media->lock_fd < 0) {
        (void)snprintf(why_out, why_bytes,
                       "node.data_dir: %s cannot be opened: %s; let this user write there", path,
                       strerror(errno));
        return YB_IO;
    }
    if (flock(media->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        (void)snprintf(why_out, why_bytes,
                       "node.data_dir: another process has %s; end it, or give this node a folder "
                       "of its own",
                       media->data_dir);
        return YB_BUSY;
    }
    path_of(media, "ssd", path);
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        (void)snprintf(why_out, why_bytes, "node.data_dir: the folder %s cannot be made: %s", path,
                       strerror(errno));
        return YB_IO;
    }
    return YB_OK;
}

/* ---- who the node is ------------------------------------------------------------------------- */

/* Understand node.json. */
static enum yb_status
take_who(struct yb_media *media, const char *path, char *why_out, size_t why_bytes)
{
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    const char *format = json_string_value(json_object_get(root, "format"));
    const char *id = json_string_value(json_object_get(root, "id"));
    const char *name = json_string_value(json_object_get(root, "name"));
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    enum yb_status status = YB_OK;

    if (format == NULL || strcmp(format, FORMAT) != 0) {
        (void)snprintf(why_out, why_bytes,
                       "node.data_dir: %s does not say whose this folder is; it is left as it is: "
                       "bring back the file, or use another folder",
                       path);
        status = YB_INVALID;
    } else if (version != VERSION) {
        (void)snprintf(why_out, why_bytes,
                       "node.data_dir: %s is of version %lld, and this program knows %d; use a "
                       "newer one, or another folder",
                       path, (long long)version, VERSION);
        status = YB_VERSION;
    } else if (id == NULL || name == NULL || !yb_id_parse(id, &media->id) ||
               strlen(name) >= sizeof(media->name) || name[0] == '\0') {
        (void)snprintf(why_out, why_bytes,
                       "node.data_dir: %s has no id or name that a node can have; bring back the "
                       "file, or use another folder",
                       path);
        status = YB_INVALID;
    } else if (!media->options.named) {
        (void)snprintf(media->name, sizeof(media->name), "%s", name);
    }
    json_decref(root);
    return status;
}

/* Write a file as a whole: beside it, synced, renamed, and the folder synced. */
static bool
write_whole(const struct yb_media *media, const char *path, const char *text)
{
    char temporary[PATH_MAX + 8];
    size_t length = strlen(text);
    int folder = open(media->data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool done = false;
    int fd;

    (void)snprintf(temporary, sizeof(temporary), "%s.new", path);
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0 && folder >= 0) {
        done = write(fd, text, length) == (ssize_t)length && fsync(fd) == 0 &&
               rename(temporary, path) == 0 && fsync(folder) == 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (folder >= 0) {
        (void)close(folder);
    }
    return done;
}

static enum yb_status
make_who(struct yb_media *media, const char *path, char *why_out, size_t why_bytes)
{
    char text[33];
    json_t *root;
    char *dump;
    bool done;

    media->options.random(media->options.random_context, &media->id, sizeof(media->id));
    yb_id_format(media->id, text);
    root = json_pack("{s:s, s:i, s:s, s:s}", "format", FORMAT, "version", VERSION, "id", text,
                     "name", media->name);
    dump = root != NULL ? json_dumps(root, JSON_INDENT(2)) : NULL;
    done = dump != NULL && write_whole(media, path, dump);
    if (!done) {
        (void)snprintf(why_out, why_bytes,
                       "node.data_dir: %s cannot be written: %s; let this user write there, and "
                       "see that the disk is not full",
                       path, strerror(errno));
    }
    free(dump);
    json_decref(root);
    return done ? YB_OK : YB_IO;
}

static enum yb_status
learn_who(struct yb_media *media, char *why_out, size_t why_bytes)
{
    char path[PATH_MAX];

    path_of(media, "node.json", path);
    if (access(path, F_OK) == 0) {
        return take_who(media, path, why_out, why_bytes);
    }
    return make_who(media, path, why_out, why_bytes);
}

/* ---- tiers ----------------------------------------------------------------------------------- */

/* A log is cut into segments of 256 MiB; a small one into more than a few. */
static uint64_t
segment_bytes(uint64_t capacity)
{
    uint64_t bytes = SEGMENT_MAX;

    while (bytes > YB_SSD_SEGMENT_BYTES_MIN && bytes > capacity / SEGMENTS_MANY) {
        bytes /= 2;
    }
    return bytes;
}

static enum yb_status
open_ssd(void *context, const struct yb_node_tier_ground *ground, struct yb_tier **tier_out)
{
    struct yb_media *media = context;
    char path[PATH_MAX];
    struct yb_ssd_options options = {
        .loop = ground->loop,
        .log = media->options.log,
        .directory = path,
        .io = media->ssd_io,
        .node = media->id,
        .capacity = media->options.ssd_bytes,
        .write_budget = media->options.ssd_write_budget,
        .segment_bytes =
            media->options.ssd_bytes != 0 ? segment_bytes(media->options.ssd_bytes) : 0,
        .events = ground->events,
        .owner = ground->owner,
    };
    enum yb_status status;

    path_of(media, "ssd", path);
    status = yb_ssd_create(&options, tier_out);
    if (status != YB_OK) {
        (void)snprintf(ground->why_out, ground->why_bytes,
                       "the log in %s cannot be opened: %s; look at node.ssd_bytes", path,
                       yb_status_text(status));
    }
    return status;
}

static enum yb_status
open_object(void *context, const struct yb_node_tier_ground *ground, struct yb_tier **tier_out)
{
    struct yb_media *media = context;
    char why[YB_OBJECT_WHY_BYTES] = "";
    const struct yb_object_options options = {
        .loop = ground->loop,
        .events = ground->events,
        .owner = ground->owner,
        .url = media->object_store,
        .stats = media->options.stats,
        .layout = media->options.packed ? YB_OBJECT_LAYOUT_PACKED : YB_OBJECT_LAYOUT_BLOCK,
    };
    enum yb_status status = yb_object_create(&options, tier_out, why);

    if (status != YB_OK) {
        (void)snprintf(ground->why_out, ground->why_bytes, "%s", why);
    }
    return status;
}

static enum yb_status
claim_object(void *context, const struct yb_node_tier_claim *claim)
{
    struct yb_media *media = context;
    struct yb_object_mark mine = {.cluster = claim->cluster, .epoch = claim->epoch};
    char why[YB_OBJECT_WHY_BYTES] = "";
    const struct yb_object_claim_options options = {
        .loop = claim->loop,
        .url = media->object_store,
        .mine = &mine,
        .deadline_ns = yb_deadline_after(yb_loop_now(claim->loop), CLAIM_NS),
        .done = claim->done,
        .context = claim->owner,
    };
    enum yb_status status;

    memcpy(mine.seed.bytes, claim->seed, sizeof(mine.seed.bytes));
    status = yb_object_claim_begin(&options, &media->claim, why);
    if (status != YB_OK) {
        (void)snprintf(claim->why_out, claim->why_bytes, "%s", why);
    }
    return status;
}

static void
claim_cancel(void *context)
{
    struct yb_media *media = context;

    yb_object_claim_cancel(media->claim);
}

static void
claim_over(void *context)
{
    struct yb_media *media = context;

    yb_object_claim_end(&media->claim);
}

/* ---- life ------------------------------------------------------------------------------------ */

static enum yb_status
copy_options(struct yb_media *media, const struct yb_media_options *options)
{
    media->options = *options;
    media->data_dir = strdup(options->data_dir);
    media->object_store = strdup(options->object_store);
    media->ssd_io = strdup(options->ssd_io);
    (void)snprintf(media->name, sizeof(media->name), "%s", options->name);
    return media->data_dir != NULL && media->object_store != NULL && media->ssd_io != NULL
               ? YB_OK
               : YB_NO_MEMORY;
}

enum yb_status
yb_media_open(const struct yb_media_options *options, struct yb_media **media_out, char *why_out,
              size_t why_bytes)
{
    struct yb_media *media = calloc(1, sizeof(*media));
    enum yb_status status = YB_OK;

    (void)snprintf(why_out, why_bytes, "no memory for the node's media");
    if (media == NULL) {
        return YB_NO_MEMORY;
    }
    media->lock_fd = -1;
    status = copy_options(media, options);
    if (status == YB_OK && options->data_dir[0] != '\0') {
        status = lock_folder(media, why_out, why_bytes);
        status = status == YB_OK ? learn_who(media, why_out, why_bytes) : status;
        yb_id_format(media->id, media->label);
        media->tiers[media->tier_count++] =
            (struct yb_node_tier){.kind = YB_WIRE_TIER_SSD, .open = open_ssd, .context = media};
    }
    if (options->object_store[0] != '\0') {
        media->tiers[media->tier_count++] = (struct yb_node_tier){
            .kind = YB_WIRE_TIER_OBJECT,
            .open = open_object,
            .context = media,
            .claim = claim_object,
            .claim_cancel = claim_cancel,
            .claim_over = claim_over,
        };
    }
    if (status != YB_OK) {
        yb_media_close(&media);
        return status;
    }
    *media_out = media;
    return YB_OK;
}

void
yb_media_close(struct yb_media **media_ref)
{
    struct yb_media *media = *media_ref;

    if (media == NULL) {
        return;
    }
    if (media->lock_fd >= 0) {
        (void)close(media->lock_fd);
    }
    free(media->data_dir);
    free(media->object_store);
    free(media->ssd_io);
    free(media);
    *media_ref = NULL;
}

const char *
yb_media_name(const struct yb_media *media)
{
    return media->name;
}

const char *
yb_media_label(const struct yb_media *media)
{
    return media->label[0] != '\0' ? media->label : NULL;
}

const struct yb_node_tier *
yb_media_tiers(const struct yb_media *media, uint32_t *count_out)
{
    *count_out = media->tier_count;
    return media->tiers;
}
