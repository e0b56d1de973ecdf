/* SPDX-License-Identifier: Apache-2.0
 *
 * Ask the scheduler where a request should run: the place that has its first blocks is busy.
 *
 *     cc sched.c $(pkg-config --cflags --libs yuebing) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>
#include <yuebing/sched.h>

#define PLACES 4u
#define BLOCKS 32u
#define MS     1000000ull

/* Stop with a sentence unless `status` is OK. */
static void
check(enum yb_status status, const char *what)
{
    if (status != YB_OK) {
        fprintf(stderr, "%s: %s\n", what, yb_status_text(status));
        exit(1);
    }
}

/* Four engines with llama-3-70b on 8 A800 each, and ports of 100 Gbit/s. */
static void
bring_places(struct yb_sched *sched)
{
    struct yb_sched_instance place = {.struct_bytes = sizeof(place),
                                      .roles = YB_SCHED_PREFILL | YB_SCHED_DECODE};
    struct yb_sched_catalog *catalog;
    struct yb_sched_cost cost;

    check(yb_sched_catalog_create(&catalog), "catalog");
    check(yb_sched_catalog_cost(catalog, "llama-3-70b", "a800", 8, &cost), "cost");
    yb_sched_catalog_destroy(&catalog);
    check(yb_sched_set_cost(sched, 0, &cost), "cost");
    place.links[YB_SCHED_LINK_IN] = (struct yb_sched_link){.rate = 12.5e9, .latency_ns = 20000};
    place.links[YB_SCHED_LINK_OUT] = place.links[YB_SCHED_LINK_IN];
    place.links[YB_SCHED_LINK_LOAD] = (struct yb_sched_link){.rate = 128e9};
    for (uint32_t i = 0; i < PLACES; i++) {
        place.node = i;
        check(yb_sched_set_instance(sched, i, &place), "place");
    }
}

static void
print(const struct yb_sched_decision *decision)
{
    printf("place %u, %u of %u blocks reused", decision->prefill, decision->reuse_blocks, BLOCKS);
    if (decision->source != YB_SCHED_NONE) {
        printf(", from place %u", decision->source);
    }
    printf(", first token expected after %.0f ms\n", (double)decision->ttft_ns / 1e6);
}

int
main(void)
{
    struct yb_sched_options options = {.struct_bytes = sizeof(options), .places_max = PLACES};
    struct yb_sched_report report = {.struct_bytes = sizeof(report), .sequence = 1};
    uint64_t blocks[BLOCKS];
    struct yb_sched_request request = {.struct_bytes = sizeof(request),
                                       .id = 1,
                                       .input_tokens = BLOCKS * 512 + 100,
                                       .blocks = blocks,
                                       .block_count = BLOCKS};
    struct yb_sched_scratch *scratch;
    struct yb_sched_decision idle, busy;
    struct yb_sched *sched;
    char message[256] = "";

    check(yb_sched_create(&options, &sched, message, sizeof(message)), message);
    check(yb_sched_scratch_create(sched, &scratch), "scratch");
    bring_places(sched);
    for (uint32_t i = 0; i < BLOCKS; i++) { /* Place 2 has the prompt's blocks in its dram. */
        blocks[i] = 1000 + i;
        check(yb_sched_add(sched, blocks[i], 2, YB_SCHED_TIER_DRAM), "block");
    }
    check(yb_sched_decide(sched, scratch, &request, 0, &idle), "decide");
    print(&idle);

    report.prefill_done_ns = 3000 * MS; /* It is busy for three seconds. */
    check(yb_sched_report(sched, 2, &report), "report");
    check(yb_sched_decide(sched, scratch, &request, 0, &busy), "decide");
    print(&busy);
    check(yb_sched_commit(sched, &request, &busy, 0), "commit");
    for (uint32_t i = 0; i < busy.instruction_count; i++) {
        printf("move %u blocks from place %u, wanted within %.0f ms\n", busy.instructions[i].count,
               busy.instructions[i].from, (double)busy.instructions[i].deadline_ns / 1e6);
    }
    yb_sched_ended(sched, busy.number, busy.ttft_ns);
    yb_sched_scratch_destroy(&scratch);
    yb_sched_destroy(&sched);
    return idle.prefill == 2 && busy.prefill != 2 && busy.source == 2 ? 0 : 1;
}
