/* SPDX-License-Identifier: Apache-2.0
 *
 * Loans: a reader is told where a value lies, and for how long it stays there (RULES A12).
 *
 *              pin                      release: OK
 *     free ----------> LENT ------------------------------------> free
 *                        |  its time and a margin passed            ^
 *                        +------------------------------------------+   a late release: STALE
 *
 * A loan never outlives the serving lease at its beginning. A borrowed one has no end of its own:
 * it holds until it is released or its process is proved to be gone. A hold shows nothing, and may
 * outlive the lease: who reads by it asks the node, which serves only what it may, and renews it
 * (RULES D3). What one client may hold is bounded; the loans of all are records of a fixed number.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "node/node_internal.h"

#define LOANS_MAX     65536u
#define BORROWERS_MAX 1024u /* Processes with loans; a power of two. */
#define PROBES        16u
#define MARGIN_NS     (100 * YB_NS_PER_MS)
#define HOLD_MAX_MS   60000u

/* What a pin is for: `borrow` of the message. */
enum { READ, BORROW, HOLD };
#define NONE UINT32_MAX

struct borrower {
    struct yb_id identity;
    uint64_t bytes;
    uint32_t loans;
    bool watched; /* Its process. */
    bool gone;    /* That was proved, at the last tick. */
};

struct loan {
    struct yb_block *block; /* NULL: free. */
    uint64_t until_ns;      /* YB_NEVER: borrowed. */
    uint32_t borrower;
    uint32_t generation;
    uint32_t next; /* In use: of all; free: of the free ones. */
    uint32_t previous;
};

struct yb_node_loans {
    uint32_t free;
    uint32_t first;
    uint32_t span;
    struct borrower borrowers[BORROWERS_MAX];
    struct loan loans[LOANS_MAX];
};

enum yb_status
yb_node_loans_create(struct yb_node *node)
{
    node->loans = calloc(1, sizeof(*node->loans));
    if (node->loans == NULL) {
        return YB_NO_MEMORY;
    }
    node->loans->free = node->loans->first = NONE;
    return YB_OK;
}

void
yb_node_loans_destroy(struct yb_node *node)
{
    free(node->loans);
    node->loans = NULL;
}

/* Find the accounts of a process, or a place to begin them; NONE: too many processes have loans. */
static uint32_t
borrower_of(struct yb_node_loans *loans, struct yb_id identity)
{
    uint64_t start = yb_hash_table_id(0, identity);
    uint32_t empty = NONE;

    for (uint32_t i = 0; i < PROBES; i++) {
        uint32_t place = (uint32_t)(start + i) & (BORROWERS_MAX - 1);
        struct borrower *borrower = &loans->borrowers[place];

        if (borrower->loans > 0 && yb_id_equal(borrower->identity, identity)) {
            return place;
        }
        if (borrower->loans == 0 && empty == NONE) {
            empty = place;
        }
    }
    if (empty != NONE) {
        loans->borrowers[empty] = (struct borrower){.identity = identity};
    }
    return empty;
}

/* Take a free record; there is one. */
static struct loan *
loan_take(struct yb_node_loans *loans)
{
    uint32_t index = loans->free;
    struct loan *loan;

    if (index != NONE) {
        loans->free = loans->loans[index].next;
    } else {
        YB_ASSERT(loans->span < LOANS_MAX);
        index = loans->span++;
    }
    loan = &loans->loans[index];
    loan->previous = NONE;
    loan->next = loans->first;
    if (loans->first != NONE) {
        loans->loans[loans->first].previous = index;
    }
    loans->first = index;
    return loan;
}

static void
loan_end(struct yb_node *node, struct loan *loan)
{
    struct yb_node_loans *loans = node->loans;
    uint32_t index = (uint32_t)(loan - loans->loans);
    struct borrower *borrower = &loans->borrowers[loan->borrower];
    struct yb_block *block = loan->block;

    YB_ASSERT(block != NULL && borrower->loans > 0);
    borrower->loans--;
    if (borrower->loans == 0 && borrower->watched) {
        borrower->watched = false;
        (void)node->options.watch(node->options.gone_context, borrower->identity, false);
    }
    borrower->bytes -= block->size;
    node->pinned_bytes -= block->size;
    if (loan->previous != NONE) {
        loans->loans[loan->previous].next = loan->next;
    } else {
        loans->first = loan->next;
    }
    if (loan->next != NONE) {
        loans->loans[loan->next].previous = loan->previous;
    }
    loan->block = NULL;
    loan->generation++;
    loan->next = loans->free;
    loans->free = index;
    yb_node_unpin(node, block);
}

/* See to it that the end of a borrower's process will be known: what is lent without an end comes
 * back by nothing else. */
static bool
watch(struct yb_node *node, struct borrower *borrower)
{
    if (!borrower->watched) {
        borrower->watched =
            node->options.watch(node->options.gone_context, borrower->identity, true);
    }
    return borrower->watched;
}

/* Lend one block. */
static enum yb_status
lend(struct yb_node *node, struct yb_block *block, const struct yb_request *request,
     uint64_t until_ns, uint64_t *pin_out)
{
    struct yb_node_loans *loans = node->loans;
    uint32_t borrower = borrower_of(loans, request->peer->identity);
    uint64_t bytes_max = node->options.pool_bytes / 1000 * node->options.pinned_permille;
    struct loan *loan;

    /* One block that is read through a short pin is lent whatever its size: LEASED means later. */
    if (borrower == NONE || (loans->free == NONE && loans->span == LOANS_MAX) ||
        (loans->borrowers[borrower].bytes + block->size > bytes_max &&
         (until_ns == YB_NEVER || loans->borrowers[borrower].bytes > 0))) {
        return YB_LEASED;
    }
    if (until_ns == YB_NEVER && !watch(node, &loans->borrowers[borrower])) {
        return YB_UNSUPPORTED;
    }
    loan = loan_take(loans);
    loan->block = block;
    loan->borrower = borrower;
    loan->until_ns = until_ns;
    loans->borrowers[borrower].loans++;
    loans->borrowers[borrower].bytes += block->size;
    node->pinned_bytes += block->size;
    yb_node_pin(node, block);
    *pin_out = (uint64_t)loan->generation << 32 | (uint64_t)(loan - loans->loans + 1);
    return YB_OK;
}

static uint64_t
hold_until(const struct yb_wire_get *body, uint64_t now_ns)
{
    uint64_t wanted_ms = body->duration_ms < HOLD_MAX_MS ? body->duration_ms : HOLD_MAX_MS;

    return now_ns + wanted_ms * YB_NS_PER_MS;
}

/* The loan of that pin, if it is the asking process's; NULL: there is none any more. */
static struct loan *
loan_of(struct yb_node_loans *loans, const struct yb_request *request, uint64_t pin)
{
    uint64_t index = (pin & UINT32_MAX) - 1;
    struct loan *loan = index < loans->span ? &loans->loans[index] : NULL;

    if (loan == NULL || loan->block == NULL || loan->generation != pin >> 32 ||
        !yb_id_equal(loans->borrowers[loan->borrower].identity, request->peer->identity)) {
        return NULL;
    }
    return loan;
}

bool
yb_node_renew(struct yb_node *node, const struct yb_request *request,
              const struct yb_wire_get *body, const struct yb_wire_get_item *item)
{
    uint64_t now_ns = yb_node_now(node);
    struct loan *loan;

    if (item->held == 0) {
        return true;
    }
    loan = loan_of(node->loans, request, item->held);
    if (loan == NULL || now_ns > loan->until_ns || loan->block->grant != item->grant) {
        return false;
    }
    if (loan->until_ns < hold_until(body, now_ns)) {
        loan->until_ns = hold_until(body, now_ns);
    }
    return true;
}

static void
pin_item(struct yb_node *node, const struct yb_request *request, const struct yb_wire_get *body,
         const struct yb_wire_get_item *item, const uint8_t *key, struct yb_wire_pin_answer *answer)
{
    const struct yb_node_name name = {item->hash, key, item->key_bytes, item->grant};
    uint32_t tenant = yb_node_tenant_of(node, request);
    uint64_t now_ns = yb_node_now(node);
    uint64_t lease_ns = yb_member_lease_until(node->member);
    uint64_t until_ns = now_ns + YB_NS_PER_MS * (body->duration_ms < node->options.pin_max_ms
                                                     ? body->duration_ms
                                                     : node->options.pin_max_ms);
    enum yb_status status = YB_NOT_FOUND;
    struct yb_block *block = NULL;

    memset(answer, 0, sizeof(*answer));
    until_ns = until_ns < lease_ns ? until_ns : lease_ns;
    if (tenant != UINT32_MAX) {
        block = yb_node_find(node, tenant, &name, &status);
    }
    if (block != NULL && !yb_node_renew(node, request, body, item)) {
        status = YB_STALE;
    } else if (block != NULL && body->borrow == HOLD) {
        status = lend(node, block, request, hold_until(body, now_ns), &answer->pin);
    } else if (block != NULL &&
               (node->region == 0 || (body->borrow == BORROW && node->options.watch == NULL))) {
        status = YB_UNSUPPORTED;
    } else if (block != NULL && !yb_node_verify(node, block, 0, block->size)) {
        status = YB_CORRUPT;
        yb_node_doom(node, block, YB_WIRE_FATE_REMOVED, true);
    } else if (block != NULL) {
        status =
            lend(node, block, request, body->borrow == BORROW ? YB_NEVER : until_ns, &answer->pin);
    } else if (body->borrow == HOLD && status == YB_NOT_READY) {
        status = YB_UNSUPPORTED; /* It lies below, and is not fetched up for this. */
    }
    answer->status = status;
    if (status != YB_OK) {
        return;
    }
    answer->size = block->size;
    answer->grant = block->grant;
    answer->flags = block->flags;
    if (body->borrow == HOLD) {
        return;
    }
    node->hits_ever++;
    answer->region = node->region;
    answer->offset = (uint64_t)(yb_node_bytes(node, block) - node->region_base);
    answer->duration_us =
        body->borrow == BORROW ? 0 : (uint32_t)((until_ns - now_ns) / YB_NS_PER_US);
    answer->checksum = block->checksum;
    answer->checked = block->checked;
    yb_node_used(node, block, node->pinning, node->pinning_item);
    yb_node_below_accessed(node, block);
    yb_node_watch_read(node, block, request);
}

void
yb_node_pin_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    struct yb_node_wait *wait = request->context; /* NULL: it comes for the first time. */
    struct yb_wire_get body;
    uint32_t count;
    size_t at = 0;
    enum yb_status status = yb_wire_get_decode(request->body, request->body_bytes, &body, NULL);

    if (status == YB_OK && wait == NULL && body.borrow != HOLD &&
        yb_node_await_below(node, request, &body, yb_node_pin_handle)) {
        return;
    }
    if (status == YB_OK && node->stopping) {
        status = YB_FENCED;
    }
    if (status == YB_OK) {
        yb_node_prefetch(node, &body);
        node->pinning = yb_node_use(node);
    }
    for (uint32_t i = 0; status == YB_OK && i < body.items.count; i++) {
        struct yb_wire_pin_answer answer;
        struct yb_wire_get_item item;

        yb_wire_get_item_at(&body.items, i, &item);
        if (at + item.key_bytes > body.keys.length) {
            status = YB_PROTOCOL; /* What was lent before it lapses by itself. */
            break;
        }
        node->gets_ever++;
        node->pinning_item = i;
        pin_item(node, request, &body, &item, body.keys.bytes + at, &answer);
        answer.status = yb_node_waited(wait, i, answer.status);
        yb_node_count_found(node, wait, i, answer.status);
        at += item.key_bytes;
        yb_wire_pin_answer_store(&answer, node->scratch + YB_WIRE_PINS_BYTES +
                                              (size_t)i * YB_WIRE_PIN_ANSWER_BYTES);
    }
    count = body.items.count;
    yb_node_wait_end(wait); /* And the body with it. */
    if (status != YB_OK) {
        yb_request_reply(request, status, NULL, 0, NULL, 0);
        return;
    }
    memset(node->scratch, 0, YB_WIRE_PINS_BYTES);
    yb_wire_put_u32(node->scratch + YB_WIRE_PINS_AT_ANSWERS, count);
    yb_request_reply(request, YB_OK, node->scratch,
                     (uint32_t)(YB_WIRE_PINS_BYTES + (size_t)count * YB_WIRE_PIN_ANSWER_BYTES),
                     NULL, 0);
}

/* Take one loan back from whom it was given to. */
static struct yb_wire_release_answer
release(struct yb_node *node, const struct yb_request *request, uint64_t pin)
{
    struct yb_wire_release_answer answer = {.status = YB_STALE};
    struct loan *loan;

    if ((pin & UINT32_MAX) - 1 >= node->loans->span) {
        return (struct yb_wire_release_answer){.status = YB_NOT_FOUND};
    }
    loan = loan_of(node->loans, request, pin);
    if (loan == NULL) {
        return answer;
    }
    answer.removed = loan->block->state != YB_BLOCK_GRANTED;
    answer.status = yb_node_now(node) <= loan->until_ns ? YB_OK : YB_STALE;
    loan_end(node, loan);
    return answer;
}

void
yb_node_release_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    struct yb_wire_releases body;
    enum yb_status status =
        yb_wire_releases_decode(request->body, request->body_bytes, &body, NULL);

    if (status != YB_OK) {
        yb_request_reply(request, status, NULL, 0, NULL, 0);
        return;
    }
    for (uint32_t i = 0; i < body.pins.count; i++) {
        struct yb_wire_release_answer answer;
        struct yb_wire_pin_id id;

        yb_wire_pin_id_at(&body.pins, i, &id);
        answer = release(node, request, id.pin);
        yb_wire_release_answer_store(&answer, node->scratch + YB_WIRE_RELEASE_ANSWERS_BYTES +
                                                  (size_t)i * YB_WIRE_RELEASE_ANSWER_BYTES);
    }
    memset(node->scratch, 0, YB_WIRE_RELEASE_ANSWERS_BYTES);
    yb_wire_put_u32(node->scratch + YB_WIRE_RELEASE_ANSWERS_AT_ANSWERS, body.pins.count);
    yb_request_reply(request, YB_OK, node->scratch,
                     (uint32_t)(YB_WIRE_RELEASE_ANSWERS_BYTES +
                                (size_t)body.pins.count * YB_WIRE_RELEASE_ANSWER_BYTES),
                     NULL, 0);
}

void
yb_node_pin_tick(struct yb_node *node, bool all)
{
    struct yb_node_loans *loans = node->loans;
    uint64_t now_ns = yb_node_now(node);
    uint32_t next;

    for (uint32_t i = 0; i < BORROWERS_MAX; i++) {
        struct borrower *borrower = &loans->borrowers[i];

        borrower->gone = borrower->watched && (all || node->options.gone(node->options.gone_context,
                                                                         borrower->identity));
    }
    for (uint32_t at = loans->first; at != NONE; at = next) {
        struct loan *loan = &loans->loans[at];
        bool gone = loans->borrowers[loan->borrower].gone;
        bool lapsed = loan->until_ns != YB_NEVER && now_ns > loan->until_ns + MARGIN_NS;

        next = loan->next;
        if (lapsed || gone || all) {
            yb_node_count(node, YB_NODE_STAT_PINS_LAPSED, 1);
            loan_end(node, loan);
        }
    }
}
