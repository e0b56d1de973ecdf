/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing demo --million`: one request of a million tokens, whose KV lies in the object store.
 *
 * A writer puts all blocks of the prompt, and then as much else as makes the nodes' memory forget
 * them: they are in the object store alone, 20 ms away. Then the conductor is asked where the
 * request should run, what of it is to be loaded and by when; the instance that it chooses is a
 * reader, a process of its own, which has room for a window of blocks and no more.
 *
 * The instruction's outcome is told to the conductor, whose account must balance.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/demo.h"
#include "cli/demo_reader.h"
#include "cli/output.h"
#include "engine/orders.h"

#define MODEL        "million"
#define READER       "reader"
#define BLOCK_TOKENS 128u
#define BLOCK_BYTES  32768u
#define FAR_MS       20u
#define WINDOW       256u /* Blocks. */
#define MEMORY_SHARE 16u  /* A node's memory is this part of the value, and at least ... */
#define MEMORY_LEAST (4ull << 20)
#define MEMORY_SLACK (16ull << 20) /* That a reader may need beside its window. */
#define KNOWN_NS     (60 * YB_NS_PER_S)
#define LOOK_NS      (50 * YB_NS_PER_MS)
#define TOKEN_MIX    2654435761u

struct million {
    struct yb_cli *cli;
    uint32_t tokens;
    uint32_t blocks;
    uint64_t node_memory;
    uint8_t (*keys)[YB_KV_KEY_BYTES];
    json_t *hashes;
    struct yb_demo_cluster cluster;
    struct yb_curl *curl;
    json_t *decision;
    uint64_t decided_ns;  /* When the conductor was asked ... */
    uint64_t deciding_ns; /* ... and how long it took. */
    struct yb_demo_read read;
    json_t *verdicts; /* How its instructions ended. */
    uint64_t issued, open;
};

static bool
fail(const struct million *million, const char *what, const char *why)
{
    fprintf(million->cli->err, "yuebing demo: %s: %s\n", what, why);
    return false;
}

static void
say(const struct million *million, const char *text)
{
    FILE *out = million->cli->json ? million->cli->err : million->cli->out;

    fprintf(out, "%s\n", text);
    (void)fflush(out);
}

/* ---- the request ----------------------------------------------------------------------------- */

/* Name the prompt's blocks. Its tokens are not needed any more then. */
static bool
make_request(struct million *million)
{
    uint32_t *numbers = calloc(million->tokens, sizeof(*numbers));

    million->blocks = million->tokens / BLOCK_TOKENS;
    million->keys = calloc(million->blocks, YB_KV_KEY_BYTES);
    if (numbers == NULL || million->keys == NULL) {
        free(numbers);
        return fail(million, "the request", yb_status_text(YB_NO_MEMORY));
    }
    for (uint32_t i = 0; i < million->tokens; i++) {
        numbers[i] = i * TOKEN_MIX % YB_ENGINE_VOCABULARY;
    }
    (void)yb_key_chain(numbers, million->tokens, BLOCK_TOKENS, MODEL, million->keys,
                       million->blocks);
    free(numbers);
    million->hashes = json_array();
    for (uint32_t i = 0; i < million->blocks; i++) {
        struct yb_id id;
        char hex[33];

        memcpy(id.bytes, million->keys[i], sizeof(id.bytes));
        yb_id_format(id, hex);
        (void)json_array_append_new(million->hashes, json_string(hex));
    }
    return true;
}

static struct yb_demo_reading
reading_of(const struct million *million)
{
    return (struct yb_demo_reading){
        .directory = million->cluster.directory,
        .keys = (const uint8_t(*)[YB_KV_KEY_BYTES])million->keys,
        .blocks = million->blocks,
        .block_bytes = BLOCK_BYTES,
        .window = WINDOW,
    };
}

/* ---- the cluster ----------------------------------------------------------------------------- */

static bool
start_cluster(struct million *million)
{
    char memory[24];
    struct yb_demo_shape shape = {
        .conductors = 1,
        .pool = true,
        .model = MODEL,
        .time_scale = 1,
        .coupled = true,
        .block_tokens = BLOCK_TOKENS,
        .block_bytes = BLOCK_BYTES,
        .node_memory = memory,
    };

    million->node_memory = (uint64_t)million->blocks * BLOCK_BYTES / MEMORY_SHARE;
    million->node_memory =
        million->node_memory > MEMORY_LEAST ? million->node_memory : MEMORY_LEAST;
    (void)snprintf(memory, sizeof(memory), "%" PRIu64, million->node_memory);
    return yb_demo_cluster_start(&million->cluster, million->cli, &shape) ||
           fail(million, "the cluster", million->cluster.why);
}

/* Put all of it, have it leave the nodes' memory, and then be far away. */
static bool
store_all(struct million *million)
{
    struct yb_demo_writing writing = {
        .what = reading_of(million),
        /* Twice what all nodes have. */
        .filler = (uint32_t)(2 * YB_DEMO_NODES * million->node_memory / BLOCK_BYTES),
    };
    struct yb_demo_written written = {0};
    char far[16];

    if (!yb_demo_elsewhere(yb_demo_write, &writing, &written, sizeof(written))) {
        return fail(million, "the writer", "it did not come back");
    }
    if (written.missing > 0) {
        return fail(million, "the writer",
                    written.error[0] != '\0' ? written.error : "the nodes lose blocks");
    }
    (void)snprintf(far, sizeof(far), "%u", FAR_MS);
    return yb_demo_cluster_far(&million->cluster, far) ||
           fail(million, "the object store", "it could not be moved away");
}

/* ---- the decision ---------------------------------------------------------------------------- */

/* Be an instance. Again: it is still there. */
static bool
be_known(struct million *million)
{
    static const double prefill_token_ns = 108300; /* Of llama-3-70b on eight A800. */
    static const double prefill_pair_ns = 1.6;
    long code = 0;
    json_t *body =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:f, s:f, s:I, s:i, s:I, s:I, s:I, s:I}", "name",
                  READER, "model", MODEL, "address", "127.0.0.1:1", "roles", "both", "incarnation",
                  1, "prefill_token_ns", prefill_token_ns, "prefill_pair_ns", prefill_pair_ns,
                  "kv_bytes", (json_int_t)(BLOCK_BYTES / BLOCK_TOKENS), "layers", 1, "in_rate",
                  (json_int_t)1000000000, "load_rate", (json_int_t)1000000000, "object_rate",
                  (json_int_t)100000000, "object_latency_us", (json_int_t)FAR_MS * 1000);

    json_decref(
        yb_ask_json(million->curl, million->cluster.conductors[0], "/v1/register", body, &code));
    return code == 200;
}

/* Ask where it should run. NULL: nowhere now. */
static json_t *
schedule(struct million *million)
{
    json_t *question = json_pack("{s:O, s:s, s:i}", "hashes", million->hashes, "model", MODEL,
                                 "input_tokens", (int)million->tokens);
    json_t *decision =
        yb_ask_json(million->curl, million->cluster.conductors[0], "/v1/schedule", question, NULL);

    if (!json_is_true(json_object_get(decision, "accepted"))) {
        json_decref(decision);
        return NULL;
    }
    return decision;
}

static void
give_up(struct million *million, const json_t *decision)
{
    json_decref(yb_ask_json(million->curl, million->cluster.conductors[0], "/v1/done",
                            json_pack("{s:I, s:s, s:b}", "decision",
                                      (json_int_t)yb_ask_number(decision, "decision"), "stage",
                                      "ended", "failed", 1),
                            NULL));
}

/* Ask until the conductor has heard of all blocks. */
static bool
decide(struct million *million)
{
    const struct yb_clock *clock = yb_clock_system();
    uint64_t until_ns = yb_clock_now(clock) + KNOWN_NS;

    while (yb_clock_now(clock) < until_ns) {
        bool known = be_known(million);

        million->decided_ns = yb_clock_now(clock);
        million->decision = known ? schedule(million) : NULL;
        million->deciding_ns = yb_clock_now(clock) - million->decided_ns;
        if (yb_ask_number(json_object_get(million->decision, "hit_blocks"), "object") >=
            million->blocks) {
            return true;
        }
        if (million->decision != NULL) {
            give_up(million, million->decision);
            json_decref(million->decision);
            million->decision = NULL;
        }
        yb_demo_pause(LOOK_NS);
    }
    return fail(million, "the conductor", "it does not learn of all blocks");
}

/* ---- carrying it out ------------------------------------------------------------------------- */

/* Judge the instructions as an engine does. */
static bool
judge(struct million *million)
{
    const struct yb_demo_read *read = &million->read;
    struct yb_engine_orders orders;
    struct yb_engine_verdicts verdicts;
    struct yb_engine_outcome outcome = {
        .prompt_tokens = million->tokens,
        .loaded_tokens = (uint32_t)read->blocks * BLOCK_TOKENS,
        .arrived_ns = million->decided_ns + million->deciding_ns + read->took_ns,
        .load_ns = read->took_ns,
        .load_failures = (uint32_t)read->failed,
    };

    for (uint32_t i = 0; i <= YB_CLIENT_TIER_OBJECT; i++) {
        outcome.tier_bytes[i] = read->tier_blocks[i] * BLOCK_BYTES;
    }
    if (!yb_engine_orders_read(json_object_get(million->decision, "instructions"),
                               million->decided_ns, &orders)) {
        return fail(million, "the conductor", "its instructions cannot be read");
    }
    yb_engine_orders_judge(&orders, &outcome, BLOCK_TOKENS, false, &verdicts);
    million->verdicts = yb_engine_verdicts_json(&verdicts);
    return true;
}

/* Tell the conductor how it was, and ask whether its account balances. */
static bool
tell(struct million *million)
{
    uint64_t decision = yb_ask_number(million->decision, "decision");
    json_t *audit;

    json_decref(yb_ask_json(
        million->curl, million->cluster.conductors[0], "/v1/done",
        json_pack("{s:I, s:s, s:I, s:O}", "decision", decision, "stage", "first_token", "ttft_us",
                  (json_int_t)((million->deciding_ns + million->read.took_ns) / YB_NS_PER_US),
                  "instructions", million->verdicts),
        NULL));
    json_decref(yb_ask_json(million->curl, million->cluster.conductors[0], "/v1/done",
                            json_pack("{s:I, s:s}", "decision", decision, "stage", "ended"), NULL));
    audit = yb_ask_by(million->curl, million->cluster.conductors[0], "/v1/audit", NULL, NULL);
    million->issued = yb_ask_number(audit, "issued");
    million->open = yb_ask_number(audit, "open");
    json_decref(audit);
    return audit != NULL || fail(million, "the conductor", "it has no account");
}

static bool
carry_out(struct million *million)
{
    const struct yb_demo_reading reading = reading_of(million);

    if (!yb_demo_elsewhere(yb_demo_read, &reading, &million->read, sizeof(million->read))) {
        return fail(million, "the reader", "it did not come back");
    }
    if (million->read.error[0] != '\0') {
        return fail(million, "the reader", million->read.error);
    }
    return judge(million) && tell(million);
}

/* ---- what came of it ------------------------------------------------------------------------- */

static void
print(const struct million *million)
{
    const struct yb_demo_read *read = &million->read;
    const json_t *verdict = json_array_get(million->verdicts, 0);
    double mib = (double)million->blocks * BLOCK_BYTES / (1 << 20);
    FILE *out = million->cli->out;

    fprintf(out,
            "\nrequest       %u tokens: %u blocks of %u, %.0f MiB; requests of the object store "
            "begin %u ms later\n",
            million->tokens, million->blocks, BLOCK_TOKENS, mib, FAR_MS);
    fprintf(out,
            "decision      reuse %lld blocks, asked and answered in %.1f ms; the load is "
            "predicted to take %.2f s\n",
            (unsigned long long)yb_ask_number(million->decision, "reuse_blocks"),
            (double)million->deciding_ns / 1e6,
            (double)yb_ask_number(json_object_get(million->decision, "times"), "load_us") / 1e6);
    fprintf(out,
            "fetched       %" PRIu64 " blocks in %.2f s (%.0f MiB/s), the first after %.0f ms; "
            "%" PRIu64 " from the object store, %" PRIu64 " from memory\n",
            read->blocks, (double)read->took_ns / 1e9, mib / ((double)read->took_ns / 1e9),
            (double)read->first_ns / 1e6, read->tier_blocks[YB_CLIENT_TIER_OBJECT],
            read->tier_blocks[YB_CLIENT_TIER_DRAM]);
    fprintf(out,
            "consumed      in order, %" PRIu64 " out of it; %" PRIu64 " failed, %" PRIu64
            " wrong bytes of %.0f MiB\n",
            read->out_of_order, read->failed, read->wrong_bytes, (double)read->bytes / (1 << 20));
    fprintf(out,
            "memory        a window of %u blocks, %.0f MiB; the reader grew by %.1f MiB, to "
            "%.1f MiB at most\n",
            WINDOW, (double)WINDOW * BLOCK_BYTES / (1 << 20),
            (double)(read->peak_bytes - read->before_bytes) / (1 << 20),
            (double)read->peak_bytes / (1 << 20));
    fprintf(out, "instructions  %" PRIu64 " issued, %" PRIu64 " open; the first one ended: %s\n",
            million->issued, million->open,
            verdict != NULL ? json_string_value(json_object_get(verdict, "outcome")) : "-");
}

static json_t *
to_json(const struct million *million)
{
    const struct yb_demo_read *read = &million->read;

    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I, s:O}",
        "tokens", (json_int_t)million->tokens, "blocks", (json_int_t)million->blocks, "block_bytes",
        (json_int_t)BLOCK_BYTES, "window_blocks", (json_int_t)WINDOW, "reuse_blocks",
        (json_int_t)yb_ask_number(million->decision, "reuse_blocks"), "decision_ms",
        (double)million->deciding_ns / 1e6, "first_ms", (double)read->first_ns / 1e6, "took_ms",
        (double)read->took_ns / 1e6, "fetched_blocks", (json_int_t)read->blocks, "object_blocks",
        (json_int_t)read->tier_blocks[YB_CLIENT_TIER_OBJECT], "memory_blocks",
        (json_int_t)read->tier_blocks[YB_CLIENT_TIER_DRAM], "out_of_order",
        (json_int_t)read->out_of_order, "failed", (json_int_t)read->failed, "verified_bytes",
        (json_int_t)read->bytes, "wrong_bytes", (json_int_t)read->wrong_bytes, "grown_bytes",
        (json_int_t)(read->peak_bytes - read->before_bytes), "instructions_issued",
        (json_int_t)million->issued, "instructions_open", (json_int_t)million->open, "outcomes",
        million->verdicts);
}

static bool
show(const struct million *million)
{
    json_t *value;
    bool done;

    if (!million->cli->json) {
        print(million);
        return true;
    }
    value = to_json(million);
    done = value != NULL && json_dumpf(value, million->cli->out, JSON_COMPACT) == 0 &&
           fputc('\n', million->cli->out) != EOF;
    json_decref(value);
    return done;
}

static bool
as_promised(const struct million *million)
{
    const struct yb_demo_read *read = &million->read;

    if (read->wrong_bytes > 0 || read->out_of_order > 0 || read->failed > 0 ||
        read->blocks != million->blocks) {
        return fail(million, "the reader", "blocks did not come, or were wrong");
    }
    if (read->peak_bytes - read->before_bytes > (uint64_t)WINDOW * BLOCK_BYTES + MEMORY_SLACK) {
        return fail(million, "the reader", "it needed more memory than its window");
    }
    if (million->issued == 0 || million->open > 0) {
        return fail(million, "the conductor", "an instruction did not end");
    }
    return true;
}

int
yb_cli_demo_million(struct yb_cli *cli, uint64_t tokens)
{
    struct million *million = calloc(1, sizeof(*million));
    char error[YB_CURL_ERROR_BYTES] = "";
    bool ok;

    if (million == NULL) {
        return YB_CLI_EXIT_FAILED;
    }
    million->cli = cli;
    million->tokens = (uint32_t)tokens;
    say(million, "yuebing demo: a directory, a conductor and 3 nodes as processes on this machine; "
                 "one request, whose blocks are put, and then fetched from the object store");
    ok = make_request(million) && start_cluster(million) && store_all(million);
    if (ok) {
        say(million, "all blocks are stored; the conductor is asked, and the reader fetches them");
        ok = (yb_curl_create(&million->curl, error) == YB_OK || fail(million, "HTTP", error)) &&
             decide(million) && carry_out(million) && show(million) && as_promised(million);
    }
    ok = yb_demo_cluster_stop(&million->cluster) && ok;
    if (million->curl != NULL) {
        yb_curl_destroy(&million->curl);
    }
    json_decref(million->decision);
    json_decref(million->verdicts);
    json_decref(million->hashes);
    free(million->keys);
    free(million);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}
