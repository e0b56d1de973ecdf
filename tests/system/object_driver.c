/* SPDX-License-Identifier: Apache-2.0
 *
 * An object tier that does what it is told on its standard input, one command a line, and answers
 * with one line each. The bytes of a block follow from its number and grant, and every load
 * compares them. Usage: object_driver URL [key=number ...]
 *
 *     start | stop | recover            recover: prints status and count of what was found
 *     store NUMBER GRANT SIZE           load NUMBER GRANT SIZE [OFFSET]
 *     kill NUMBER GRANT                 flush EPOCH
 *     batch store|load FIRST COUNT SIZE GRANT     all at the same time: prints how many ended how
 *     deadline MS                       of what follows; 0: none
 *     aside                             waits until the tier has stepped aside: prints why
 *     back                              waits until it is back
 *     find NUMBER | stats | quit
 */
#include "../unit/object_ground.h"

#include <inttypes.h>

#include "base/clock.h"

static struct object_ground ground;
static uint64_t deadline_ms;

static uint64_t
deadline(void)
{
    return deadline_ms == 0 ? YB_NEVER
                            : yb_clock_now(yb_clock_system()) + deadline_ms * YB_NS_PER_MS;
}

static void
say(const char *text)
{
    puts(text);
    (void)fflush(stdout);
}

static void
batch(const char *what, uint64_t first, uint32_t count, uint64_t size, uint64_t grant)
{
    bool stores = strcmp(what, "store") == 0;
    struct object_block *blocks = calloc(count, sizeof(*blocks));
    struct object_reading *readings = calloc(count, sizeof(*readings));
    uint32_t well = 0, wrong = 0;
    enum yb_status other = YB_OK;
    char line[96];

    for (uint32_t i = 0; i < count; i++) {
        if (stores) {
            block_init(&blocks[i], first + i, grant, size);
            blocks[i].store.op.deadline_ns = deadline();
            block_submit(&ground, &blocks[i]);
        } else {
            reading_init(&readings[i], first + i, grant, 0, size);
            readings[i].load.op.deadline_ns = deadline();
            reading_submit(&ground, &readings[i]);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        enum yb_status status;

        ground_turn(&ground, stores ? &blocks[i].ended : &readings[i].ended);
        status = stores ? blocks[i].status : readings[i].status;
        well += status == YB_OK;
        other = status == YB_OK ? other : status;
        if (!stores && status == YB_OK) {
            uint8_t *bytes = malloc(size + 1);

            ground_fill(bytes, size, first + i, grant);
            wrong += memcmp(bytes, readings[i].bytes, size) != 0;
            free(bytes);
        }
        if (stores) {
            block_fini(&blocks[i]);
        } else {
            reading_fini(&readings[i]);
        }
    }
    free(blocks);
    free(readings);
    (void)snprintf(line, sizeof(line), "%u %s%s", well, yb_status_name(other),
                   wrong == 0 ? "" : " WRONG BYTES");
    say(line);
}

static void
stats(void)
{
    const struct yb_object_stats told = yb_object_stats(ground.tier);
    struct yb_tier_info info;

    yb_tier_info(ground.tier, &info);
    printf("{\"get\": %" PRIu64 ", \"put\": %" PRIu64 ", \"head\": %" PRIu64
           ", \"delete\": %" PRIu64 ", \"list\": %" PRIu64 ", \"retries\": %" PRIu64
           ", \"hedges\": %" PRIu64 ", \"hedges_won\": %" PRIu64 ", \"resolved\": %" PRIu64
           ", \"merged\": %" PRIu64 ", \"kill_objects\": %" PRIu64 ", \"blocks\": %" PRIu64
           ", \"live\": %" PRIu64 ", \"lost\": %u}\n",
           told.requests[YB_OBJECT_GET], told.requests[YB_OBJECT_PUT],
           told.requests[YB_OBJECT_HEAD], told.requests[YB_OBJECT_DELETE],
           told.requests[YB_OBJECT_LIST], told.retries, told.hedges, told.hedges_won, told.resolved,
           told.merged, told.kill_objects, info.blocks, info.live, ground.lost);
    (void)fflush(stdout);
}

static void
one(const char *word, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    struct object_block block;
    struct object_reading reading;
    struct yb_tier_found found;
    char line[YB_OBJECT_WHY_BYTES + 32];

    if (strcmp(word, "store") == 0) {
        block_init(&block, a, b, c);
        block.store.op.deadline_ns = deadline();
        block_submit(&ground, &block);
        ground_turn(&ground, &block.ended);
        say(yb_status_name(block.status));
        block_fini(&block);
    } else if (strcmp(word, "load") == 0) {
        if (deadline_ms == 0) {
            say(yb_status_name(block_load_range(&ground, a, b, d, c)));
            return;
        }
        reading_init(&reading, a, b, d, c);
        reading.load.op.deadline_ns = deadline();
        reading_submit(&ground, &reading);
        ground_turn(&ground, &reading.ended);
        say(yb_status_name(reading.status));
        reading_fini(&reading);
    } else if (strcmp(word, "kill") == 0) {
        say(yb_status_name(block_kill(&ground, a, b)));
    } else if (strcmp(word, "flush") == 0) {
        say(yb_status_name(tenant_flush(&ground, a)));
    } else if (strcmp(word, "find") == 0) {
        bool there = yb_tier_find(ground.tier, ground_hash(a), &found);

        (void)snprintf(line, sizeof(line), "%" PRIu64, there ? found.grant : 0);
        say(line);
    }
}

static bool
command(const char *line)
{
    char word[16] = "", what[16] = "", text[YB_OBJECT_WHY_BYTES + 32];
    uint64_t a = 0, b = 0, c = 0, d = 0;

    (void)sscanf(line, "%15s", word);
    (void)sscanf(line, "%*s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &a, &b, &c, &d);
    if (strcmp(word, "quit") == 0) {
        return false;
    }
    if (strcmp(word, "batch") == 0 &&
        sscanf(line, "%*s %15s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, what, &a, &b, &c,
               &d) == 5) {
        batch(what, a, (uint32_t)b, c, d);
    } else if (strcmp(word, "start") == 0) {
        ground_start(&ground);
        say("ok");
    } else if (strcmp(word, "stop") == 0) {
        ground_stop(&ground);
        say("ok");
    } else if (strcmp(word, "recover") == 0) {
        ground_recover(&ground);
        (void)snprintf(text, sizeof(text), "%s %u", yb_status_name(ground.recovered_status),
                       ground.found_count);
        say(text);
    } else if (strcmp(word, "deadline") == 0) {
        deadline_ms = a;
        say("ok");
    } else if (strcmp(word, "aside") == 0 || strcmp(word, "back") == 0) {
        while ((ground.aside == YB_OK) == (word[0] == 'a')) {
            yb_loop_turn(ground.loop, 100 * YB_NS_PER_MS);
        }
        (void)snprintf(text, sizeof(text), "%s %s", yb_status_name(ground.aside), ground.why);
        say(text);
    } else if (strcmp(word, "stats") == 0) {
        stats();
    } else {
        one(word, a, b, c, d);
    }
    return true;
}

static void
option(const char *text)
{
    static const struct {
        const char *name;
        size_t offset;
    } numbers[] = {
        {"attempt_timeout_ns", offsetof(struct yb_object_options, attempt_timeout_ns)},
        {"pause_ns", offsetof(struct yb_object_options, pause_ns)},
        {"aside_ns", offsetof(struct yb_object_options, aside_ns)},
        {"kill_life_ns", offsetof(struct yb_object_options, kill_life_ns)},
        {"pack_wait_ns", offsetof(struct yb_object_options, pack_wait_ns)},
        {"pack_bytes", offsetof(struct yb_object_options, pack_bytes)},
    };
    const char *equals = strchr(text, '=');
    uint64_t value = equals == NULL ? 0 : strtoull(equals + 1, NULL, 10);

    if (strcmp(text, "packed=1") == 0) {
        ground.options.layout = YB_OBJECT_LAYOUT_PACKED;
    } else if (strncmp(text, "concurrency=", 12) == 0) {
        ground.options.concurrency = (uint32_t)value;
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (equals != NULL && strncmp(text, numbers[i].name, (size_t)(equals - text)) == 0) {
            memcpy((uint8_t *)&ground.options + numbers[i].offset, &value, sizeof(value));
        }
    }
}

int
main(int argc, char **argv)
{
    char line[256];

    if (argc < 2) {
        return 2;
    }
    ground_init(&ground);
    ground.options.operations_max = 2048;
    ground.options.url = argv[1];
    for (int i = 2; i < argc; i++) {
        option(argv[i]);
    }
    while (fgets(line, sizeof(line), stdin) != NULL && command(line)) {
    }
    ground_fini(&ground);
    return 0;
}
