/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler: what it is told, what it counts, and that it does not do what it must not.
 *
 * Allocations are counted by this program's own malloc. Under a sanitizer, which brings a malloc of
 * its own, there is nothing to count.
 */
#include "sched_ground.h"

#include "sched/sched_internal.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS 0
#else
#define COUNTS 1
#endif
#else
#define COUNTS 1
#endif

static bool counting;
static uint64_t allocations;

#if COUNTS
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

void *
malloc(size_t size)
{
    allocations += counting;
    return __libc_malloc(size);
}

void *
calloc(size_t count, size_t size)
{
    allocations += counting;
    return __libc_calloc(count, size);
}

void *
realloc(void *old, size_t size)
{
    allocations += counting;
    return __libc_realloc(old, size);
}
#endif

/* ---- tables ---------------------------------------------------------------------------------- */

static void
test_sched__each_policy_of_the_tables_has_a_text_and_can_be_had(void **state)
{
    const char *name;
    uint32_t routings = 0;
    uint32_t admissions = 0;
    char message[256] = "";
    struct yb_sched_options options = ground_options(NULL);
    struct yb_sched *sched;

    (void)state;
    for (; (name = yb_sched_routing_name(routings)) != NULL; routings++) {
        assert_true(strlen(yb_sched_routing_text(routings)) > 0);
        options.routing = name;
        assert_int_equal(yb_sched_create(&options, &sched, NULL, 0), YB_OK);
        assert_string_equal(yb_sched_info(sched).routing, name);
        yb_sched_destroy(&sched);
    }
    for (; (name = yb_sched_admission_name(admissions)) != NULL; admissions++) {
        assert_true(strlen(yb_sched_admission_text(admissions)) > 0);
        options.admission = name;
        assert_int_equal(yb_sched_create(&options, &sched, NULL, 0), YB_OK);
        assert_string_equal(yb_sched_info(sched).admission, name);
        yb_sched_destroy(&sched);
    }
    assert_true(routings == 14 && admissions == 4);
    assert_null(yb_sched_routing_text(routings));
    assert_null(yb_sched_admission_text(admissions));
    options.admission = "dice";
    assert_int_equal(yb_sched_create(&options, &sched, message, sizeof(message)), YB_INVALID);
    assert_non_null(strstr(message, "dice"));
    assert_non_null(strstr(message, "early-predicted"));
}

static void
test_sched__a_places_number_is_free_when_nothing_of_it_is_left(void **state)
{
    struct yb_sched_options options = ground_options("ready");
    struct yb_sched_instance instance = ground_instance(3);
    struct yb_sched_hit hits[256];
    struct ground ground;
    uint32_t steps = 0;

    (void)state;
    ground_open(&ground, &options, 8);
    ground_add(&ground, 3, YB_SCHED_TIER_DRAM, GROUND_BLOCKS);
    assert_true(yb_sched_is_swept(ground.sched, 3));
    assert_int_equal(yb_sched_remove_instance(ground.sched, 3), YB_OK);
    assert_int_equal(yb_sched_remove_instance(ground.sched, 3), YB_NOT_FOUND);
    assert_int_equal(yb_sched_remove_instance(ground.sched, 256), YB_INVALID);
    assert_false(yb_sched_is_swept(ground.sched, 3));
    assert_false(yb_sched_is_swept(ground.sched, 256)); /* Never to be had. */
    while (yb_sched_sweep(ground.sched, 100)) {
        assert_true(++steps < 100000);
    }
    assert_true(steps > 1);
    assert_true(yb_sched_is_swept(ground.sched, 3));
    assert_int_equal(yb_sched_set_instance(ground.sched, 3, &instance), YB_OK);
    (void)yb_sched_match(ground.sched, ground.scratch, ground.blocks, GROUND_BLOCKS, 0, hits);
    assert_int_equal(hits[3].run[YB_SCHED_TIER_SSD], 0);
    ground_close(&ground);
}

/* ---- decisions ------------------------------------------------------------------------------- */

static void
test_sched__the_same_state_and_request_give_the_same_decision(void **state)
{
    struct ground grounds[2];
    struct yb_sched_decision decisions[2];

    (void)state;
    for (uint32_t r = 0; yb_sched_routing_name(r) != NULL; r++) {
        struct yb_sched_options options = ground_options(yb_sched_routing_name(r));

        for (uint32_t i = 0; i < 2; i++) {
            ground_open(&grounds[i], &options, 20);
            ground_add(&grounds[i], 3, YB_SCHED_TIER_DRAM, 20);
            ground_add(&grounds[i], 9, YB_SCHED_TIER_SSD, 30);
            ground_add(&grounds[i], YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT, 40);
        }
        for (uint32_t k = 0; k < 200; k++) {
            for (uint32_t i = 0; i < 2; i++) {
                struct yb_sched_request request = ground_request(&grounds[i], 1 + k % 60);

                decisions[i] = ground_decide(&grounds[i], &request);
                if (k % 3 == i) { /* Asking changes nothing. */
                    struct yb_sched_decision again = ground_decide(&grounds[i], &request);

                    assert_memory_equal(&again, &decisions[i], sizeof(again));
                }
                assert_int_equal(
                    yb_sched_commit(grounds[i].sched, &request, &decisions[i], grounds[i].now_ns),
                    YB_OK);
                grounds[i].now_ns += 50 * GROUND_MS;
            }
            assert_memory_equal(&decisions[0], &decisions[1], sizeof(decisions[0]));
            assert_int_equal(decisions[0].number, k + 1);
        }
        ground_close(&grounds[0]);
        ground_close(&grounds[1]);
    }
}

static void
expect_able(const struct ground *ground, const struct yb_sched_decision *decision)
{
    const struct yb_sched_load *prefill = &ground->sched->loads[decision->prefill];
    const struct yb_sched_load *decode = &ground->sched->loads[decision->decode];

    assert_true(prefill->alive && (prefill->roles & YB_SCHED_PREFILL) != 0);
    assert_true(decode->alive && (decode->roles & YB_SCHED_DECODE) != 0);
    assert_true(decision->local_blocks <= decision->reuse_blocks);
    assert_true((decision->source == YB_SCHED_NONE) ==
                (decision->local_blocks == decision->reuse_blocks));
    if (decision->source < YB_SCHED_SHARED) {
        assert_true(ground->sched->loads[decision->source].alive);
    }
    for (uint32_t i = 0; i < decision->instruction_count; i++) {
        const struct yb_sched_instruction *instruction = &decision->instructions[i];

        assert_true(instruction->count > 0);
        assert_true(instruction->from == YB_SCHED_SHARED ||
                    ground->sched->loads[instruction->from].alive);
        assert_true(ground->sched->loads[instruction->to].alive);
    }
}

/* Places of all kinds come and go under every policy in every mode. */
static void
test_sched__only_places_that_are_there_and_have_the_role_are_named(void **state)
{
    uint64_t random = unit_seed("sched roles");
    uint32_t modes[] = {YB_SCHED_MODE_COUPLED, YB_SCHED_MODE_DISAGGREGATED};

    (void)state;
    for (uint32_t r = 0; yb_sched_routing_name(r / 2) != NULL; r++) {
        struct yb_sched_options options = ground_options(yb_sched_routing_name(r / 2));
        struct ground ground;
        uint64_t accepted = 0;

        options.mode = modes[r % 2];
        ground_open(&ground, &options, 12);
        for (uint32_t k = 0; k < 1500; k++) {
            uint32_t place = (uint32_t)(unit_random(&random) % 12);
            struct yb_sched_instance instance = ground_instance(place);
            struct yb_sched_request request =
                ground_request(&ground, (uint32_t)(unit_random(&random) % GROUND_BLOCKS));
            struct yb_sched_decision decision;
            enum yb_status expected;

            switch (unit_random(&random) % 6) {
            case 0:
                expected = ground.sched->loads[place].alive ? YB_OK : YB_NOT_FOUND;
                assert_int_equal(yb_sched_remove_instance(ground.sched, place), expected);
                while (yb_sched_sweep(ground.sched, 10000)) {
                }
                break;
            case 1:
                instance.roles = (uint32_t)(unit_random(&random) % 4);
                assert_int_equal(yb_sched_set_instance(ground.sched, place, &instance), YB_OK);
                break;
            case 2:
                if (ground.sched->loads[place].alive) {
                    ground_add(&ground, place, k % 3, k % GROUND_BLOCKS);
                }
                break;
            default: break;
            }
            request.not_at = (uint32_t)(unit_random(&random) % 24);
            decision = ground_decide(&ground, &request);
            ground.now_ns += 10 * GROUND_MS;
            if (!decision.accepted) {
                assert_true(decision.reason == YB_SCHED_REASON_NO_PREFILL ||
                            decision.reason == YB_SCHED_REASON_NO_DECODE);
                continue;
            }
            accepted++;
            expect_able(&ground, &decision);
            assert_int_not_equal(decision.prefill + 1, request.not_at);
            assert_int_equal(yb_sched_commit(ground.sched, &request, &decision, ground.now_ns),
                             YB_OK);
        }
        assert_true(accepted > 100);
        ground_close(&ground);
    }
}

static void
test_sched__a_decision_about_a_place_that_has_gone_is_stale(void **state)
{
    struct yb_sched_options options = ground_options(NULL);
    struct ground ground;
    struct yb_sched_request request;
    struct yb_sched_decision decision;

    (void)state;
    ground_open(&ground, &options, 2);
    request = ground_request(&ground, 4);
    decision = ground_decide(&ground, &request);
    assert_true(decision.accepted);
    assert_int_equal(yb_sched_remove_instance(ground.sched, decision.prefill), YB_OK);
    assert_int_equal(yb_sched_commit(ground.sched, &request, &decision, ground.now_ns), YB_STALE);
    assert_int_equal(yb_sched_info(ground.sched).decisions, 0);
    assert_int_equal(yb_sched_info(ground.sched).pending, 0);
    ground_close(&ground);
}

/* ---- counting -------------------------------------------------------------------------------- */

/* What a walk knows of a decision. */
struct known {
    uint64_t number;
    uint32_t prefill;
    uint32_t decode;
    uint64_t prefilled_ns;
    bool at_prefill; /* No report has it there. */
    bool at_decode;
    uint32_t new_tokens;
    uint32_t context_tokens;
};

static void
check_loads(const struct ground *ground, const struct known *known, uint32_t count)
{
    for (uint32_t place = 0; place < ground->places; place++) {
        const struct yb_sched_load *load = &ground->sched->loads[place];
        const struct yb_sched_report *report = &ground->sched->places[place].report;
        uint64_t queued = report->queued;
        uint64_t running = report->running;
        uint64_t tokens = report->prefill_tokens;
        uint64_t context = report->context_tokens;

        for (uint32_t i = 0; i < count; i++) {
            if (known[i].at_prefill && known[i].prefill == place) {
                queued++;
                tokens += known[i].new_tokens;
            }
            if (known[i].at_decode && known[i].decode == place) {
                running++;
                context += known[i].context_tokens;
            }
        }
        assert_int_equal(load->queued, queued);
        assert_int_equal(load->running, running);
        assert_int_equal(load->prefill_tokens, tokens);
        assert_int_equal(load->context_tokens, context);
    }
}

static void
walk_report(struct ground *ground, uint64_t *random, struct known *known, uint32_t count)
{
    uint32_t place = (uint32_t)(unit_random(random) % ground->places);
    struct yb_sched_report report = {
        .struct_bytes = sizeof(report),
        .sequence = ++ground->requests,
        .at_ns = ground->now_ns,
        .queued = (uint32_t)(unit_random(random) % 9),
        .running = (uint32_t)(unit_random(random) % 9),
        .prefill_tokens = unit_random(random) % 9999,
        .context_tokens = unit_random(random) % 9999,
        .seen = {unit_random(random) % (yb_sched_info(ground->sched).decisions + 1)},
    };

    assert_int_equal(yb_sched_report(ground->sched, place, &report), YB_OK);
    for (uint32_t i = 0; i < count; i++) {
        if (known[i].prefill == place && known[i].number <= report.seen[0]) {
            known[i].at_prefill = false;
        }
        if (known[i].decode == place && known[i].prefilled_ns != 0 &&
            report.at_ns >= known[i].prefilled_ns) {
            known[i].at_decode = false;
        }
    }
}

static void
walk_prefilled(struct ground *ground, struct known *one)
{
    yb_sched_prefilled(ground->sched, one->number, ground->now_ns);
    if (one->prefilled_ns == 0) {
        one->prefilled_ns = ground->now_ns;
        one->at_decode = one->at_decode || (one->at_prefill && one->decode == one->prefill);
        one->at_prefill = false;
    }
}

static struct known
walk_decide(struct ground *ground, uint32_t blocks)
{
    struct yb_sched_request request = ground_request(ground, blocks);
    struct yb_sched_decision decision = ground_decide(ground, &request);

    assert_int_equal(yb_sched_commit(ground->sched, &request, &decision, ground->now_ns), YB_OK);
    return (struct known){
        .number = decision.number,
        .prefill = decision.prefill,
        .decode = decision.decode,
        .at_prefill = true,
        .at_decode = decision.decode != decision.prefill,
        .new_tokens = request.input_tokens - decision.reuse_tokens,
        .context_tokens = request.input_tokens,
    };
}

/* Decisions, reports and ends in any order: a request is counted at its places once, by a report or
 * by this conductor, and not at all when it has ended. */
static void
test_sched__each_request_is_counted_once_until_it_ends(void **state)
{
    uint64_t random = unit_seed("sched counting");
    uint32_t modes[] = {YB_SCHED_MODE_COUPLED, YB_SCHED_MODE_DISAGGREGATED};

    (void)state;
    for (uint32_t m = 0; m < 2; m++) {
        struct yb_sched_options options = ground_options("least-load");
        struct ground ground;
        struct known known[100];
        uint32_t count = 0;

        options.mode = modes[m];
        options.pending_max = 10000;
        ground_open(&ground, &options, 6);
        for (uint32_t k = 0; k < 6000; k++) {
            uint32_t i = count == 0 ? 0 : (uint32_t)(unit_random(&random) % count);

            ground.now_ns += GROUND_MS;
            switch (unit_random(&random) % 5) {
            case 0: walk_report(&ground, &random, known, count); break;
            case 1:
                if (count > 0) {
                    walk_prefilled(&ground, &known[i]);
                }
                break;
            case 2:
                if (count > 0) {
                    yb_sched_ended(ground.sched, known[i].number, ground.now_ns);
                    known[i] = known[--count];
                }
                break;
            default:
                if (count < 100) {
                    known[count++] = walk_decide(&ground, 1 + k % 40);
                }
            }
            check_loads(&ground, known, count);
            assert_int_equal(yb_sched_info(ground.sched).pending, count);
        }
        ground_close(&ground);
    }
}

static void
test_sched__the_oldest_decision_is_forgotten_beyond_the_bound(void **state)
{
    struct yb_sched_options options = ground_options("round-robin");
    struct ground ground;

    (void)state;
    options.pending_max = 8;
    ground_open(&ground, &options, 2);
    for (uint32_t i = 0; i < 20; i++) {
        struct yb_sched_request request = ground_request(&ground, 2);
        struct yb_sched_decision decision = ground_decide(&ground, &request);

        assert_int_equal(yb_sched_commit(ground.sched, &request, &decision, ground.now_ns), YB_OK);
    }
    assert_int_equal(yb_sched_info(ground.sched).pending, 8);
    assert_int_equal(yb_sched_info(ground.sched).forgotten, 12);
    assert_int_equal(ground.sched->loads[0].queued, 4);
    yb_sched_ended(ground.sched, 3, ground.now_ns); /* Forgotten. */
    assert_int_equal(yb_sched_info(ground.sched).pending, 8);
    yb_sched_ended(ground.sched, 20, ground.now_ns);
    assert_int_equal(yb_sched_info(ground.sched).pending, 7);
    ground_close(&ground);
}

/* ---- what is being computed ------------------------------------------------------------------ */

static void
test_sched__what_a_running_prefill_computes_is_soon_there_until_it_has_ended(void **state)
{
    struct yb_sched_options options = ground_options("least-load");
    struct ground ground;
    struct yb_sched_request request;
    struct yb_sched_decision decision;
    struct yb_sched_hit hits[256];
    uint32_t place;

    (void)state;
    ground_open(&ground, &options, 4);
    request = ground_request(&ground, 30);
    decision = ground_decide(&ground, &request);
    place = decision.prefill;
    assert_int_equal(yb_sched_commit(ground.sched, &request, &decision, ground.now_ns), YB_OK);
    assert_int_equal(
        yb_sched_match(ground.sched, ground.scratch, ground.blocks, 40, ground.now_ns, hits), 0);
    assert_int_equal(hits[place].soon, 30);
    assert_int_equal(hits[place].run[YB_SCHED_TIER_SSD], 0);
    assert_int_equal(hits[(place + 1) % 4].soon, 0);
    /* The first blocks have landed, the others come. */
    ground_add(&ground, place, YB_SCHED_TIER_DEVICE, 10);
    assert_int_equal(
        yb_sched_match(ground.sched, ground.scratch, ground.blocks, 40, ground.now_ns, hits), 10);
    assert_int_equal(hits[place].soon, 30);
    yb_sched_prefilled(ground.sched, decision.number, ground.now_ns);
    assert_int_equal(
        yb_sched_match(ground.sched, ground.scratch, ground.blocks, 40, ground.now_ns, hits), 10);
    assert_int_equal(hits[place].soon, 10);
    ground_close(&ground);
}

/* ---- several conductors ---------------------------------------------------------------------- */

static void
test_sched__the_others_decisions_are_guessed_from_their_share(void **state)
{
    struct yb_sched_options options = ground_options("least-load");
    struct ground ground;
    struct yb_sched_report report = {
        .struct_bytes = sizeof(report), .sequence = 1, .in_flight = {10, 20, 10}};

    (void)state;
    ground_open(&ground, &options, 4);
    report.at_ns = ground.now_ns;
    assert_int_equal(yb_sched_report(ground.sched, 0, &report), YB_OK);
    for (uint32_t i = 0; i < 4; i++) {
        struct yb_sched_request request = ground_request(&ground, 8);
        struct yb_sched_decision decision = ground_decide(&ground, &request);

        assert_int_equal(yb_sched_commit(ground.sched, &request, &decision, ground.now_ns), YB_OK);
        /* One of ours means four in all. */
        assert_int_equal(ground.sched->loads[decision.prefill].queued, 4);
        assert_true(ground.sched->loads[decision.prefill].done_ns - ground.now_ns >=
                    4 * decision.prefill_ns - 4);
        assert_int_equal(decision.report_sequence, decision.prefill == 0 ? 1 : 0);
    }
    ground_close(&ground);
}

/* Sixteen conductors see the same reports and decide about a request each at the same time. */
static void
test_sched__conductors_side_by_side_do_not_choose_the_same_place(void **state)
{
    uint32_t chosen[64] = {0};
    uint32_t most = 0;

    (void)state;
    for (uint32_t conductor = 0; conductor < YB_SCHED_CONDUCTORS_MAX; conductor++) {
        struct yb_sched_options options = ground_options("ready");
        struct ground ground;
        struct yb_sched_request request;
        struct yb_sched_decision decision;

        options.conductor = conductor;
        ground_open(&ground, &options, 64);
        for (uint32_t i = 0; i < 64; i++) {
            struct yb_sched_report report = {
                .struct_bytes = sizeof(report), .sequence = 1, .in_flight = {3, 3, 3, 3}};

            report.at_ns = ground.now_ns;
            report.prefill_done_ns = ground.now_ns + i * GROUND_MS; /* Place 0 is the best. */
            assert_int_equal(yb_sched_report(ground.sched, i, &report), YB_OK);
        }
        request = ground_request(&ground, 60);
        request.id = 1000 + conductor;
        decision = ground_decide(&ground, &request);
        chosen[decision.prefill]++;
        ground_close(&ground);
    }
    for (uint32_t i = 0; i < 64; i++) {
        most = chosen[i] > most ? chosen[i] : most;
    }
    assert_true(most <= 4);
}

/* ---- fairness -------------------------------------------------------------------------------- */

/* A stream of equal, unknown prompts, near what the places can do: all get their part, and no queue
 * is left to grow. */
static void
test_sched__equal_places_get_equal_work(void **state)
{
    static const char *const names[] = {"ready", "mooncake", "cache-local", "least-load",
                                        "round-robin"};

    (void)state;
    for (uint32_t r = 0; r < sizeof(names) / sizeof(names[0]); r++) {
        struct yb_sched_options options = ground_options(names[r]);
        struct ground ground;
        uint32_t counts[16] = {0};
        uint64_t longest_ns = 0;

        ground_open(&ground, &options, 16);
        for (uint32_t k = 0; k < 1600; k++) {
            struct yb_sched_request request = ground_request(&ground, 16);
            struct yb_sched_decision decision;

            for (uint32_t i = 0; i < 16; i++) { /* Nobody has seen it before. */
                ground.blocks[i] = 100000ull * k + i;
            }
            decision = ground_decide(&ground, &request);
            assert_int_equal(yb_sched_commit(ground.sched, &request, &decision, ground.now_ns),
                             YB_OK);
            counts[decision.prefill]++;
            longest_ns = decision.queue_ns > longest_ns ? decision.queue_ns : longest_ns;
            ground.now_ns += 65 * GROUND_MS; /* Each takes 0.94 s: 90 % of what 16 can do. */
            yb_sched_prefilled(ground.sched, k >= 40 ? k - 39 : 0, ground.now_ns);
            yb_sched_ended(ground.sched, k >= 40 ? k - 39 : 0, ground.now_ns);
        }
        for (uint32_t i = 0; i < 16; i++) {
            assert_in_range(counts[i], 80, 120);
        }
        assert_true(longest_ns < 5 * GROUND_S);
        ground_close(&ground);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void
test_sched__deciding_and_carrying_out_allocate_nothing(void **state)
{
    (void)state;
    if (!COUNTS) {
        skip();
    }
    for (uint32_t r = 0; yb_sched_routing_name(r) != NULL; r++) {
        struct yb_sched_options options = ground_options(yb_sched_routing_name(r));
        struct ground ground;

        ground_open(&ground, &options, 40);
        ground_add(&ground, 3, YB_SCHED_TIER_DRAM, 20);
        ground_add(&ground, 9, YB_SCHED_TIER_SSD, 30);
        counting = true;
        for (uint32_t k = 0; k < 500; k++) {
            struct yb_sched_request request = ground_request(&ground, 1 + k % 60);
            struct yb_sched_decision decision = ground_decide(&ground, &request);

            assert_int_equal(yb_sched_commit(ground.sched, &request, &decision, ground.now_ns),
                             YB_OK);
            ground_add(&ground, k % 40, k % 3, 1 + k % 60);
            ground_busy(&ground, k % 40, k * GROUND_MS);
            yb_sched_prefilled(ground.sched, k, ground.now_ns);
            yb_sched_ended(ground.sched, k, ground.now_ns);
            ground.now_ns += 50 * GROUND_MS;
        }
        counting = false;
        assert_int_equal(allocations, 0);
        ground_close(&ground);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void
test_sched__what_is_outside_the_contract_is_refused_and_changes_nothing(void **state)
{
    struct yb_sched_options options = ground_options("no-such");
    struct yb_sched_cost cost = ground_cost();
    struct yb_sched_instance instance = ground_instance(1);
    struct yb_sched_report report = {.struct_bytes = sizeof(report), .sequence = 5};
    struct yb_sched *sched = NULL;
    struct ground ground;
    struct yb_sched_request request;
    struct yb_sched_decision decision;
    char message[128] = "";

    (void)state;
    assert_int_equal(yb_sched_create(&options, &sched, message, sizeof(message)), YB_INVALID);
    assert_non_null(strstr(message, "routing cannot be"));
    options = ground_options(NULL);
    options.conductor = YB_SCHED_CONDUCTORS_MAX;
    assert_int_equal(yb_sched_create(&options, &sched, NULL, 0), YB_INVALID);
    options = ground_options(NULL);
    options.struct_bytes = 3;
    assert_int_equal(yb_sched_create(&options, &sched, NULL, 0), YB_INVALID);
    assert_null(sched);

    options = ground_options(NULL);
    ground_open(&ground, &options, 4);
    assert_int_equal(yb_sched_set_cost(ground.sched, YB_SCHED_COSTS_MAX, &cost), YB_INVALID);
    cost.prefill_token_ns = -1;
    assert_int_equal(yb_sched_set_cost(ground.sched, 1, &cost), YB_INVALID);
    instance.cost = 1;
    assert_int_equal(yb_sched_set_instance(ground.sched, 1, &instance), YB_INVALID);
    instance = ground_instance(1);
    assert_int_equal(yb_sched_set_instance(ground.sched, 256, &instance), YB_INVALID);
    instance.rack = YB_SCHED_RACKS_MAX;
    assert_int_equal(yb_sched_set_instance(ground.sched, 1, &instance), YB_INVALID);
    instance = ground_instance(1);
    instance.links[2].rate = -5;
    assert_int_equal(yb_sched_set_instance(ground.sched, 1, &instance), YB_INVALID);

    assert_int_equal(yb_sched_report(ground.sched, 300, &report), YB_INVALID);
    assert_int_equal(yb_sched_report(ground.sched, 30, &report), YB_NOT_FOUND);
    assert_int_equal(yb_sched_report(ground.sched, 1, &report), YB_OK);
    assert_int_equal(yb_sched_report(ground.sched, 1, &report), YB_STALE);

    assert_int_equal(yb_sched_add(ground.sched, 1, 30, YB_SCHED_TIER_DRAM), YB_INVALID);
    assert_int_equal(yb_sched_add(ground.sched, 1, 1, YB_SCHED_TIER_OBJECT), YB_INVALID);
    assert_int_equal(yb_sched_add(ground.sched, 1, YB_SCHED_SHARED, YB_SCHED_TIER_DRAM),
                     YB_INVALID);
    assert_int_equal(yb_sched_drop(ground.sched, 1, 1, YB_SCHED_TIER_DRAM), YB_NOT_FOUND);
    assert_int_equal(yb_sched_remove_instance(ground.sched, 30), YB_NOT_FOUND);

    request = ground_request(&ground, 3);
    request.id = 0;
    assert_int_equal(yb_sched_decide(ground.sched, ground.scratch, &request, 0, &decision),
                     YB_INVALID);
    request = ground_request(&ground, 3);
    request.input_tokens = 0;
    assert_int_equal(yb_sched_decide(ground.sched, ground.scratch, &request, 0, &decision),
                     YB_INVALID);
    request = ground_request(&ground, 3);
    request.blocks = NULL;
    assert_int_equal(yb_sched_decide(ground.sched, ground.scratch, &request, 0, &decision),
                     YB_INVALID);
    assert_int_equal(yb_sched_info(ground.sched).places, 4);
    ground_close(&ground);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sched__each_policy_of_the_tables_has_a_text_and_can_be_had),
        cmocka_unit_test(test_sched__a_places_number_is_free_when_nothing_of_it_is_left),
        cmocka_unit_test(test_sched__the_same_state_and_request_give_the_same_decision),
        cmocka_unit_test(test_sched__only_places_that_are_there_and_have_the_role_are_named),
        cmocka_unit_test(test_sched__a_decision_about_a_place_that_has_gone_is_stale),
        cmocka_unit_test(test_sched__each_request_is_counted_once_until_it_ends),
        cmocka_unit_test(test_sched__the_oldest_decision_is_forgotten_beyond_the_bound),
        cmocka_unit_test(
            test_sched__what_a_running_prefill_computes_is_soon_there_until_it_has_ended),
        cmocka_unit_test(test_sched__the_others_decisions_are_guessed_from_their_share),
        cmocka_unit_test(test_sched__conductors_side_by_side_do_not_choose_the_same_place),
        cmocka_unit_test(test_sched__equal_places_get_equal_work),
        cmocka_unit_test(test_sched__deciding_and_carrying_out_allocate_nothing),
        cmocka_unit_test(test_sched__what_is_outside_the_contract_is_refused_and_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
