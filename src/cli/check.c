/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing check engine`: the same long prompt to one engine and then to another one.
 *
 *     A is asked        -> blocks appear in the store
 *     B is asked else   -> how fast it answers what nobody has computed
 *     B is asked that   -> blocks of A's are read, or B puts its own, or neither
 *
 * Which it was is seen in the store, not told by the engines. When nothing of A's was read, the
 * names that A and B gave to one prompt say why.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/check.h"
#include "cli/measure.h"
#include "cli/output.h"
#include "cli/store.h"
#include "compat/keyspace.h"

#define WORDS_USUAL  1500u
#define TOKENS_USUAL 8u
#define SETTLE_USUAL 5000u
#define PLACES_MAX   64u

/* clang-format off */
/*    kind      what it is, what to do */
#define CAUSE_MAP(X)                                                                              \
    X(NOTHING,  "A put nothing into this store",                                                  \
      "its connector is off or was refused (its log says `Initialize MooncakeDistributedStore "   \
      "failed`, or setup's reason), it uses another directory or tenant, or the prompt is shorter "\
      "than one block (--words): compare its flags with `yuebing engine-config`")                 \
    X(ENGINES,  "A and B are engines of different kinds, and cannot read each other's blocks",    \
      "compare two of the same kind")                                                             \
    X(NAMES,    "A and B give their blocks different names: model, prefix or tag differ",         \
      "start both with the same model path (its last part is the name) and the same prefix or tag")\
    X(RANKS,    "A and B cut the model differently: their ranks or groups have no name in common", \
      "start both with the same parallel sizes (tensor, pipeline, context)")                      \
    X(LENGTHS,  "A and B hash with different algorithms: their hashes are not even of one length", \
      "start both with the same one (vLLM: --prefix-caching-hash-algo; LMCache: "                 \
      "pre_caching_hash_algorithm)")                                                              \
    X(CUTS,     "A and B cut the prompt into different numbers of blocks",                        \
      "start both with the same block size (vLLM: --block-size; SGLang: --page-size; LMCache: "   \
      "chunk_size)")                                                                              \
    X(HASHES,   "A and B give the same prompt different hashes",                                  \
      "set PYTHONHASHSEED=0 in the environment of every engine process (LMCache, older vLLM, "    \
      "and vLLM with xxhash draw a random one otherwise); if it is, tokenizers, adapters or "     \
      "cache salts differ")                                                                       \
    X(DECLINED, "B was told that loading does not pay: its reuse gate declined what is there",    \
      "the gate compares loading with computing; make loading faster, or open it "                \
      "(reuse_gate off)")                                                                         \
    X(UNREAD,   "A's blocks are there, and B neither read one nor put its own under other names", \
      "B's connector is off, is a producer only (kv_role), does not look (enable_lookup), uses "  \
      "another directory or tenant, or could not load (its log names keys that failed): compare " \
      "its flags with `yuebing engine-config`")                                                   \
    X(OWN,      "B had the prompt in its own memory before it asked the store",                   \
      "give the addresses of two engines, not of one, nor of a balancer before both")
/* clang-format on */

enum cause {
    CAUSE_NONE,
#define X(kind, what, remedy) CAUSE_##kind,
    CAUSE_MAP(X)
#undef X
};

static const struct {
    const char *name;
    const char *what;
    const char *remedy;
} causes[] = {[CAUSE_NONE] = {"NONE", "", ""},
#define X(kind, what_, remedy_) [CAUSE_##kind] = {#kind, (what_), (remedy_)},
              CAUSE_MAP(X)
#undef X
};

const struct yb_cli_option yb_cli_check_options[] = {
    {"model", "NAME", "model to ask for; default: the first one that A names"},
    {"words", "N", "length of the prompt, 16 .. 200000; default 1500"},
    {"max-tokens", "N", "length of the answer, 1 .. 4096; default 8"},
    {"settle-ms", "N", "how long blocks may take to appear, 0 .. 600000; default 5000"},
    {"api-key-file", "PATH", "file with the key that both servers want"},
    YB_CLI_STORE_OPTIONS,
    {NULL, NULL, NULL},
};

/* Blocks of A's that B read, by where they lie. */
struct place {
    char node[64];
    const char *tier;
    uint64_t blocks;
    uint64_t bytes;
};

struct checking {
    struct yb_cli *cli;
    struct yb_client *client;
    struct yb_check_server a, b;
    char model[YB_CHECK_MODEL_BYTES];
    char api_key[512];
    uint64_t words, tokens, settle_ms, timeout_ns;

    struct yb_check_answer answer_a, fresh, answer_b;
    uint64_t base, between;     /* Newest grants before A, and before B is asked for A's prompt. */
    uint64_t still_ns;          /* Since when nothing of A's was written. */
    uint64_t asked_ns;          /* When B was asked for A's prompt. */
    struct yb_check_view put;   /* By A. */
    struct yb_check_view after; /* All since `base`. */

    uint64_t stored, stored_bytes, read, read_bytes, others;
    struct place places[PLACES_MAX];
    uint32_t place_count;
    bool equal;
    enum cause cause;
};

/* ---- prompts -------------------------------------------------------------------------------- */

/* Words that no cache has seen: syllables by a random number. NULL: no memory. */
static char *
make_prompt(uint64_t words)
{
    static const char *const syllables[] = {"ba", "de", "fi", "go", "lu", "ma", "ne", "pi",
                                            "ro", "su", "ta", "ve", "wi", "yo", "zu", "ka"};
    char *prompt = malloc(words * 7 + 1);
    uint64_t state = 0;
    size_t at = 0;

    if (prompt == NULL || getrandom(&state, sizeof(state), 0) != (ssize_t)sizeof(state)) {
        free(prompt);
        return NULL;
    }
    state |= 1;
    for (uint64_t i = 0; i < words; i++) {
        state ^= state >> 12; /* xorshift64* */
        state ^= state << 25;
        state ^= state >> 27;
        for (unsigned k = 0; k < 3; k++) {
            const char *syllable = syllables[(state * 2685821657736338717ull >> (60 - 4 * k)) & 15];

            prompt[at++] = syllable[0];
            prompt[at++] = syllable[1];
        }
        prompt[at++] = ' ';
    }
    prompt[at] = '\0';
    return prompt;
}

/* ---- what the store shows ------------------------------------------------------------------- */

static bool
same_key(const struct yb_check_block *one, const struct yb_check_block *other)
{
    return one->key_bytes == other->key_bytes && memcmp(one->key, other->key, one->key_bytes) == 0;
}

/* Whether a copy was read after B was asked. Before that it was last touched when it was written,
 * and nothing was written since `still_ns`: half way between is far from both. */
static bool
was_read(const struct checking *checking, const struct yb_check_block *block)
{
    uint64_t half_ns = (checking->asked_ns - checking->still_ns) / 2;
    uint64_t limit_ms = (checking->after.begun_ns - checking->asked_ns + half_ns) / YB_NS_PER_MS;

    return block->idle_ms < limit_ms;
}

static void
count_place(struct checking *checking, const struct yb_check_block *block)
{
    uint32_t i = 0;

    while (i < checking->place_count && (strcmp(checking->places[i].node, block->node) != 0 ||
                                         checking->places[i].tier != block->tier)) {
        i++;
    }
    if (i == PLACES_MAX) {
        return;
    }
    if (i == checking->place_count) {
        checking->places[checking->place_count++].tier = block->tier;
        snprintf(checking->places[i].node, sizeof(checking->places[i].node), "%s", block->node);
    }
    checking->places[i].blocks++;
    checking->places[i].bytes += block->size;
}

/* A's blocks in a view that was made later: how many keys, how many of them were read. */
static void
count_blocks(struct checking *checking)
{
    const struct yb_check_view *after = &checking->after;
    const struct yb_check_block *last = NULL;
    bool last_read = false;

    for (uint32_t i = 0; i < after->count; i++) {
        const struct yb_check_block *block = &after->blocks[i];
        bool again = last != NULL && same_key(last, block);

        last = block;
        last_read = again && last_read;
        if (block->grant > checking->between) {
            checking->others += !again;
            continue;
        }
        if (checking->put.count == 0 || bsearch(block, checking->put.blocks, checking->put.count,
                                                sizeof(*block), yb_check_by_key) == NULL) {
            continue; /* Of the prompt that B alone was asked. */
        }
        if (was_read(checking, block) && !last_read) {
            last_read = true;
            checking->read++;
            checking->read_bytes += block->size;
            count_place(checking, block);
        }
    }
    last = NULL;
    for (uint32_t i = 0; i < checking->put.count; i++) {
        const struct yb_check_block *block = &checking->put.blocks[i];

        if (last == NULL || !same_key(last, block)) {
            checking->stored++;
            checking->stored_bytes += block->size;
        }
        last = block;
    }
}

/* ---- why nothing was read ------------------------------------------------------------------- */

/* What the names of one side are like, by its first block. */
struct naming {
    struct yb_keyspace_key parsed;
    const struct yb_check_block *first;
    uint64_t blocks; /* Of the same family as the first. */
};

static bool
same_part(const struct naming *one, struct yb_keyspace_part part,
          const struct yb_check_block *block, struct yb_keyspace_part other)
{
    return part.bytes == other.bytes &&
           memcmp(one->first->key + part.at, block->key + other.at, part.bytes) == 0;
}

static void
add_to_naming(struct naming *naming, const struct yb_check_block *block)
{
    struct yb_keyspace_key parsed;

    yb_keyspace_parse(block->key, block->key_bytes, &parsed);
    if (naming->first == NULL) {
        naming->first = block;
        naming->parsed = parsed;
    }
    naming->blocks += parsed.engine == naming->parsed.engine &&
                      parsed.kin_bytes == naming->parsed.kin_bytes &&
                      memcmp(block->key, naming->first->key, parsed.kin_bytes) == 0 &&
                      same_part(naming, naming->parsed.rank, block, parsed.rank);
}

/* Whether B has a block with A's first one's ranks. */
static bool
ranks_meet(const struct checking *checking, const struct naming *a)
{
    for (uint32_t i = 0; i < checking->after.count; i++) {
        const struct yb_check_block *block = &checking->after.blocks[i];
        struct yb_keyspace_key parsed;

        if (block->grant > checking->between) {
            yb_keyspace_parse(block->key, block->key_bytes, &parsed);
            if (same_part(a, a->parsed.rank, block, parsed.rank)) {
                return true;
            }
        }
    }
    return false;
}

/* A and B both put blocks of one prompt, under different names. */
static enum cause
compare_names(const struct checking *checking)
{
    struct naming a = {0};
    struct naming b = {0};

    for (uint32_t i = 0; i < checking->put.count; i++) {
        add_to_naming(&a, &checking->put.blocks[i]);
    }
    for (uint32_t i = 0; i < checking->after.count; i++) {
        if (checking->after.blocks[i].grant > checking->between) {
            add_to_naming(&b, &checking->after.blocks[i]);
        }
    }
    YB_ASSERT(a.first != NULL && b.first != NULL);
    if (a.parsed.engine != b.parsed.engine) {
        return CAUSE_ENGINES;
    }
    if (a.parsed.kin_bytes != b.parsed.kin_bytes ||
        memcmp(a.first->key, b.first->key, a.parsed.kin_bytes) != 0) {
        return CAUSE_NAMES;
    }
    if (!ranks_meet(checking, &a)) {
        return CAUSE_RANKS;
    }
    if (a.parsed.hash.bytes != b.parsed.hash.bytes && a.parsed.engine != YB_KEYSPACE_FLEXKV) {
        return CAUSE_LENGTHS;
    }
    return a.blocks != b.blocks || a.first->size != b.first->size ? CAUSE_CUTS : CAUSE_HASHES;
}

/* Whether the directory remembers that a reuse gate declined one of A's blocks. */
static bool
was_declined(const struct checking *checking)
{
    struct yb_cli_store store;
    struct yb_cli_block block;
    char key[YB_CLIENT_KEY_BYTES_MAX + 1];
    const struct yb_check_block *first = &checking->put.blocks[0];
    bool declined = false;

    if (memchr(first->key, '\0', first->key_bytes) != NULL ||
        yb_cli_store_open(checking->cli, false, &store) != YB_OK) {
        return false;
    }
    memcpy(key, first->key, first->key_bytes);
    key[first->key_bytes] = '\0';
    declined = yb_cli_store_block(&store, key, &block) == YB_OK &&
               block.known.declined != YB_WIRE_DECLINE_NONE;
    yb_cli_store_close(&store);
    return declined;
}

static enum cause
find_cause(const struct checking *checking)
{
    if (checking->read > 0) {
        return CAUSE_NONE;
    }
    if (checking->stored == 0) {
        return CAUSE_NOTHING;
    }
    if (checking->others > 0) {
        return compare_names(checking);
    }
    if (checking->answer_b.cached_tokens > 0) {
        return CAUSE_OWN;
    }
    return was_declined(checking) ? CAUSE_DECLINED : CAUSE_UNREAD;
}

/* ---- asking --------------------------------------------------------------------------------- */

static bool
ask(struct checking *checking, const struct yb_check_server *server, const char *prompt,
    struct yb_check_answer *answer)
{
    if (yb_check_ask(server, prompt, (uint32_t)checking->tokens, answer)) {
        return true;
    }
    fprintf(checking->cli->err, "yuebing check: %s\n", answer->error);
    return false;
}

static bool
is_fine(struct checking *checking, enum yb_status status)
{
    if (status != YB_OK) {
        fprintf(checking->cli->err, "yuebing check: %s: %s\n", yb_status_name(status),
                yb_cli_outcome_text(status));
    }
    return status == YB_OK;
}

/* Wait until what an engine puts is put, and take a look. */
static bool
settle(struct checking *checking, uint64_t since, struct yb_check_view *view_out,
       uint64_t *still_ns_out)
{
    return is_fine(checking,
                   yb_check_settle(checking->client, since, checking->timeout_ns,
                                   checking->settle_ms * YB_NS_PER_MS, view_out, still_ns_out));
}

/* Ask A, then B. False: it did not work out, and why was printed. */
static bool
ask_both(struct checking *checking, const char *prompt, const char *fresh)
{
    struct yb_check_view view = {0};
    uint64_t unused_ns;
    bool done;

    if (!is_fine(checking,
                 yb_check_view(checking->client, UINT64_MAX, checking->timeout_ns, &view))) {
        return false;
    }
    checking->base = view.newest;
    yb_check_view_fini(&view);
    if (!ask(checking, &checking->a, prompt, &checking->answer_a) ||
        !settle(checking, checking->base, &checking->put, &checking->still_ns)) {
        return false;
    }
    /* A prompt that B has to compute; it may put that, too. */
    done = ask(checking, &checking->b, fresh, &checking->fresh) &&
           settle(checking, checking->put.newest, &view, &unused_ns);
    checking->between = view.newest > checking->put.newest ? view.newest : checking->put.newest;
    yb_check_view_fini(&view);
    if (!done) {
        return false;
    }
    checking->asked_ns = yb_measure_now_ns();
    if (!ask(checking, &checking->b, prompt, &checking->answer_b) ||
        !settle(checking, checking->between, &view, &unused_ns)) {
        return false;
    }
    yb_check_view_fini(&view);
    return is_fine(checking, yb_check_view(checking->client, checking->base, checking->timeout_ns,
                                           &checking->after));
}

static bool
run(struct checking *checking)
{
    char *prompt = make_prompt(checking->words);
    char *fresh = make_prompt(checking->words);
    bool done = prompt != NULL && fresh != NULL && ask_both(checking, prompt, fresh);

    free(prompt);
    free(fresh);
    if (done) {
        checking->equal = checking->answer_a.text_bytes == checking->answer_b.text_bytes &&
                          memcmp(checking->answer_a.text, checking->answer_b.text,
                                 checking->answer_a.text_bytes) == 0;
        count_blocks(checking);
        checking->cause = find_cause(checking);
    }
    return done;
}

/* ---- telling -------------------------------------------------------------------------------- */

static void
print_answer(FILE *out, const char *who, const struct yb_check_answer *answer)
{
    fprintf(out, "%-28s first text after %9.1f ms, all of it after %9.1f ms", who,
            (double)answer->ttft_ns / 1e6, (double)answer->total_ns / 1e6);
    if (answer->cached_tokens >= 0) {
        fprintf(out, ", %" PRId64 " of %" PRId64 " tokens from a cache", answer->cached_tokens,
                answer->prompt_tokens);
    }
    (void)fputc('\n', out);
}

static void
print_text(const struct checking *checking)
{
    FILE *out = checking->cli->out;
    char bytes[YB_CLI_BYTES_TEXT];

    print_answer(out, "A, the prompt:", &checking->answer_a);
    print_answer(out, "B, a prompt that is new:", &checking->fresh);
    print_answer(out, "B, A's prompt:", &checking->answer_b);
    yb_cli_bytes_text(checking->stored_bytes, bytes);
    fprintf(out, "A put %" PRIu64 " blocks (%s)%s", checking->stored, bytes,
            checking->put.more ? ", or more" : "");
    yb_cli_bytes_text(checking->read_bytes, bytes);
    fprintf(out, "; B read %" PRIu64 " of them (%s), and put %" PRIu64 " of its own\n",
            checking->read, bytes, checking->others);
    for (uint32_t i = 0; i < checking->place_count; i++) {
        fprintf(out, "  %" PRIu64 " from %s, %s\n", checking->places[i].blocks,
                checking->places[i].node, checking->places[i].tier);
    }
    fprintf(out, "the two answers are %s\n", checking->equal ? "equal" : "different");
    if (checking->cause != CAUSE_NONE) {
        fprintf(out, "no hit: %s\nremedy: %s\n", causes[checking->cause].what,
                causes[checking->cause].remedy);
    } else if (!checking->equal) {
        fprintf(out,
                "remedy: ask A twice; if it differs from itself it does not repeat itself at all "
                "(batching, kernels), otherwise A's blocks do not fit B: other weights, kinds of "
                "numbers or layouts under one name\n");
    }
}

static json_t *
answer_json(const struct yb_check_answer *answer)
{
    return json_pack("{s:f, s:f, s:I, s:I}", "ttft_ms", (double)answer->ttft_ns / 1e6, "total_ms",
                     (double)answer->total_ns / 1e6, "prompt_tokens",
                     (json_int_t)answer->prompt_tokens, "cached_tokens",
                     (json_int_t)answer->cached_tokens);
}

static json_t *
as_json(const struct checking *checking)
{
    json_t *places = json_array();
    json_t *cause = json_null();

    for (uint32_t i = 0; i < checking->place_count; i++) {
        json_array_append_new(places,
                              json_pack("{s:s, s:s, s:I, s:I}", "node", checking->places[i].node,
                                        "tier", checking->places[i].tier, "blocks",
                                        (json_int_t)checking->places[i].blocks, "bytes",
                                        (json_int_t)checking->places[i].bytes));
    }
    if (checking->cause != CAUSE_NONE) {
        cause = json_pack("{s:s, s:s, s:s}", "kind", causes[checking->cause].name, "what",
                          causes[checking->cause].what, "remedy", causes[checking->cause].remedy);
    }
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "model",
                     checking->model, "words", (json_int_t)checking->words, "a",
                     answer_json(&checking->answer_a), "b_fresh", answer_json(&checking->fresh),
                     "b", answer_json(&checking->answer_b), "outputs_equal", (int)checking->equal,
                     "stored", (json_int_t)checking->stored, "stored_bytes",
                     (json_int_t)checking->stored_bytes, "read", (json_int_t)checking->read,
                     "read_bytes", (json_int_t)checking->read_bytes, "put_by_b",
                     (json_int_t)checking->others, "places", places, "cause", cause);
}

/* ---- the command ---------------------------------------------------------------------------- */

static bool
read_api_key(struct checking *checking)
{
    const char *path = yb_cli_option(checking->cli, "api-key-file");
    FILE *file = path == NULL ? NULL : fopen(path, "re");

    if (path == NULL) {
        return true;
    }
    if (file == NULL || fgets(checking->api_key, sizeof(checking->api_key), file) == NULL) {
        fprintf(checking->cli->err, "yuebing check: %s cannot be read, or is empty\n", path);
        if (file != NULL) {
            (void)fclose(file);
        }
        return false;
    }
    (void)fclose(file);
    checking->api_key[strcspn(checking->api_key, "\r\n")] = '\0';
    return true;
}

/* Read the command line. False: it was refused, and why was printed. */
static bool
understand(struct checking *checking, int argc, char **argv)
{
    struct yb_cli *cli = checking->cli;
    const char *model = yb_cli_option(cli, "model");

    if (argc != 3 || strcmp(argv[0], "engine") != 0) {
        fprintf(cli->err, "yuebing check: write yuebing check engine URL_A URL_B\n");
        return false;
    }
    for (int i = 1; i < 3; i++) {
        if (strncmp(argv[i], "http://", 7) != 0 && strncmp(argv[i], "https://", 8) != 0) {
            fprintf(cli->err, "yuebing check: \"%s\" is no http:// or https:// address\n", argv[i]);
            return false;
        }
    }
    if (strcmp(argv[1], argv[2]) == 0) {
        fprintf(cli->err, "yuebing check: A and B are the same engine, which has its own cache\n");
        return false;
    }
    if (!yb_cli_option_number(cli, "words", 16, 200000, &checking->words) ||
        !yb_cli_option_number(cli, "max-tokens", 1, 4096, &checking->tokens) ||
        !yb_cli_option_number(cli, "settle-ms", 0, 600000, &checking->settle_ms) ||
        !yb_cli_store_timeout(cli, &checking->timeout_ns) || !read_api_key(checking)) {
        return false;
    }
    if (model != NULL) {
        snprintf(checking->model, sizeof(checking->model), "%s", model);
    }
    checking->a = (struct yb_check_server){
        .url = argv[1],
        .model = checking->model,
        .api_key = checking->api_key[0] == '\0' ? NULL : checking->api_key,
        .timeout_ns = checking->timeout_ns,
    };
    checking->b = checking->a;
    checking->b.url = argv[2];
    return true;
}

int
yb_cli_check(struct yb_cli *cli, int argc, char **argv)
{
    struct checking checking = {
        .cli = cli,
        .words = WORDS_USUAL,
        .tokens = TOKENS_USUAL,
        .settle_ms = SETTLE_USUAL,
    };
    char error[YB_CHECK_ERROR_BYTES];
    int code = YB_CLI_EXIT_FAILED;

    if (!understand(&checking, argc, argv)) {
        return YB_CLI_EXIT_REFUSED;
    }
    if (yb_cli_open_client(cli, checking.timeout_ns, &checking.client, &code) != YB_OK) {
        return code;
    }
    if (checking.model[0] == '\0' && !yb_check_model(&checking.a, checking.model, error)) {
        fprintf(cli->err, "yuebing check: %s\n", error);
    } else if (run(&checking)) {
        if (!cli->json) {
            print_text(&checking);
            code = checking.read > 0 && checking.equal ? 0 : YB_CLI_EXIT_FAILED;
        } else if (yb_output_json(cli->out, as_json(&checking)) == YB_OK) {
            code = checking.read > 0 && checking.equal ? 0 : YB_CLI_EXIT_FAILED;
        }
    }
    yb_client_close(&checking.client);
    yb_check_answer_fini(&checking.answer_a);
    yb_check_answer_fini(&checking.fresh);
    yb_check_answer_fini(&checking.answer_b);
    yb_check_view_fini(&checking.put);
    yb_check_view_fini(&checking.after);
    return code;
}
