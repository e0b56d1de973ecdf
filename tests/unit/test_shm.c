/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions between processes of one host: who is let in, and what is lent.
 */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/net.h"
#include "transfer/shm/attach.h"
#include "transfer/shm/catalogue.h"
#include "transfer/shm/shm_internal.h"

#define PATIENCE_NS (60 * YB_NS_PER_S) /* Only something broken takes so long. */

#define EXPECT_OK(call) assert_int_equal((call), YB_OK)

static uint64_t
now_ns(void)
{
    return yb_clock_now(yb_clock_system());
}

/* ---- two hosts without engines --------------------------------------------------------------- */

struct pair {
    struct yb_region_table *regions[2];
    struct yb_shm_host *hosts[2]; /* Initiator, target. */
    struct yb_loop *loop;
    struct yb_id identity;
    struct yb_shm_intro mine;
    struct yb_shm_intro theirs;
    struct yb_shm_session *session;
    struct yb_shm_session_info info;
    uint32_t news;
    bool gone;
};

static void
on_news(void *owner, bool gone)
{
    struct pair *pair = owner;

    assert_false(pair->gone);
    yb_shm_session_info(pair->session, &pair->info);
    pair->news++;
    pair->gone = gone;
}

static void
pair_init(struct pair *pair)
{
    const struct yb_loop_options options = {.backend = "epoll", .clock = yb_clock_system()};
    char why[YB_SHM_WHY_BYTES];

    memset(pair, 0, sizeof(*pair));
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_OK(yb_region_table_create(64, &pair->regions[i]));
        EXPECT_OK(yb_shm_host_create(pair->regions[i], &pair->hosts[i]));
    }
    EXPECT_OK(yb_loop_create(&options, &pair->loop));
    pair->identity.bytes[0] = 1;
    EXPECT_OK(yb_shm_host_introduce(pair->hosts[0], &pair->mine, why));
    EXPECT_OK(
        yb_shm_session_expect(pair->hosts[1], pair->identity, &pair->mine, &pair->theirs, why));
}

#define AWAIT(pair, condition)                        \
    do {                                              \
        uint64_t until_ = now_ns() + PATIENCE_NS;     \
        while (!(condition)) {                        \
            if (now_ns() >= until_) {                 \
                fail_msg("never: %s", #condition);    \
            }                                         \
            yb_loop_turn((pair)->loop, YB_NS_PER_MS); \
        }                                             \
    } while (0)

static void
pair_connect(struct pair *pair)
{
    const struct yb_shm_session_options options = {
        .loop = pair->loop,
        .mine = &pair->mine,
        .theirs = &pair->theirs,
        .news = on_news,
        .owner = pair,
    };

    EXPECT_OK(yb_shm_session_connect(pair->hosts[0], &options, &pair->session));
    AWAIT(pair, pair->info.state != YB_SHM_ASKED);
}

static void
pair_fini(struct pair *pair)
{
    if (pair->session != NULL) {
        yb_shm_session_close(pair->session);
        AWAIT(pair, pair->gone);
        assert_int_equal(pair->info.state, YB_SHM_GONE);
        yb_shm_session_unref(pair->session);
    }
    for (uint32_t i = 0; i < 2; i++) {
        yb_shm_host_destroy(&pair->hosts[i]);
        assert_null(pair->hosts[i]);
        yb_region_table_destroy(&pair->regions[i]);
    }
    yb_loop_destroy(&pair->loop);
}

/* The target's end of the session; NULL while it is not UP. Unref it. */
static struct yb_shm_session *
target_of(struct pair *pair)
{
    return yb_shm_session_find(pair->hosts[1], pair->theirs.token, pair->identity);
}

static void
expect_down(struct pair *pair, const char *part)
{
    struct yb_shm_session *target = target_of(pair);

    assert_int_equal(pair->info.state, YB_SHM_DOWN);
    if (strstr(pair->info.why, part) == NULL) {
        fail_msg("`%s` does not say `%s`", pair->info.why, part);
    }
    assert_false(yb_shm_session_up(pair->session));
    if (target != NULL) {
        yb_shm_session_unref(target);
    }
}

static void
test_shm__two_engines_of_one_host_prove_each_other(void **state)
{
    struct pair pair;
    struct yb_shm_session *target;

    (void)state;
    pair_init(&pair);
    assert_null(target_of(&pair));
    pair_connect(&pair);
    assert_int_equal(pair.info.state, YB_SHM_UP);
    assert_true(pair.info.attach);
    assert_true(pair.info.attach_theirs);
    target = target_of(&pair);
    assert_non_null(target);
    assert_true(yb_shm_session_up(target));
    yb_shm_session_unref(target);
    pair_fini(&pair);
}

static void
test_shm__a_token_that_was_not_given_opens_nothing(void **state)
{
    struct pair pair;

    (void)state;
    pair_init(&pair);
    pair.theirs.token.bytes[3] ^= 1;
    pair_connect(&pair);
    expect_down(&pair, "closed the unix socket");
    pair.theirs.token.bytes[3] ^= 1;
    assert_null(target_of(&pair));
    pair_fini(&pair);
}

static void
test_shm__a_token_answers_to_its_identity_only(void **state)
{
    struct pair pair;

    (void)state;
    pair_init(&pair);
    pair_connect(&pair);
    pair.identity.bytes[0] ^= 1;
    assert_null(target_of(&pair));
    pair_fini(&pair);
}

static void
test_shm__a_page_with_another_nonce_is_refused(void **state)
{
    struct pair pair;

    (void)state;
    pair_init(&pair);
    pair.theirs.nonce.bytes[15] ^= 1;
    pair_connect(&pair);
    expect_down(&pair, "another process's");
    pair_fini(&pair);
}

/* The lent page is right, but it does not stand where the peer said: the pid is not the peer. */
static void
test_shm__the_nonce_must_be_read_back_from_the_process_on_the_socket(void **state)
{
    struct pair pair;
    uint64_t elsewhere[8] = {0};

    (void)state;
    pair_init(&pair);
    pair.theirs.page = (uintptr_t)elsewhere;
    pair_connect(&pair);
    expect_down(&pair, "identity page is not there");
    pair_fini(&pair);
}

/* ---- strangers ------------------------------------------------------------------------------- */

static int
knock(const struct pair *pair)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(pair->theirs.name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    memcpy(address.sun_path + 1, pair->theirs.name, length);
    assert_int_equal(connect(fd, (struct sockaddr *)&address,
                             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)),
                     0);
    return fd;
}

static void
expect_hung_up(int fd)
{
    char byte;

    assert_true(recv(fd, &byte, 1, 0) <= 0); /* Waits for the end. */
    (void)close(fd);
}

static void
test_shm__strangers_are_shown_the_door(void **state)
{
    struct yb_wire_shm_note note = {.kind = YB_WIRE_SHM_NOTE_KIND_PROVE};
    struct pair pair;
    int fd;

    (void)state;
    pair_init(&pair);
    fd = knock(&pair);
    assert_int_equal(send(fd, "GET / HTTP/1.1", 14, 0), 14);
    expect_hung_up(fd);
    fd = knock(&pair); /* A proof without a token. */
    EXPECT_OK(yb_shm_note_send(fd, &note, -1));
    expect_hung_up(fd);
    fd = knock(&pair); /* Not the first thing to say. */
    note.kind = YB_WIRE_SHM_NOTE_KIND_WANT;
    note.token = pair.theirs.token;
    EXPECT_OK(yb_shm_note_send(fd, &note, -1));
    expect_hung_up(fd);
    pair_connect(&pair);
    assert_int_equal(pair.info.state, YB_SHM_UP);
    pair_fini(&pair);
}

static int
memfd_of(uint64_t bytes, bool sealed)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fallocate(fd, 0, 0, (off_t)bytes), 0);
    if (sealed) {
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    }
    return fd;
}

/* Show the right token with a descriptor that is not worth mapping. */
static void
show_page(uint64_t bytes, bool sealed)
{
    struct yb_wire_shm_note note = {.kind = YB_WIRE_SHM_NOTE_KIND_PROVE};
    struct pair pair;
    int page = memfd_of(bytes, sealed);
    int fd;

    pair_init(&pair);
    fd = knock(&pair);
    note.token = pair.theirs.token;
    EXPECT_OK(yb_shm_note_send(fd, &note, page));
    expect_hung_up(fd);
    assert_null(target_of(&pair));
    (void)close(page);
    pair_fini(&pair);
}

static void
test_shm__a_page_that_is_short_or_can_shrink_is_not_mapped(void **state)
{
    (void)state;
    show_page(4096, true);
    show_page(sizeof(struct yb_shm_page), false);
    show_page(sizeof(struct yb_shm_page), true); /* Fine, but it is not the page of the question. */
}

/* ---- what a session can do ------------------------------------------------------------------- */

static void
test_shm__without_attach_a_session_still_lends(void **state)
{
    struct pair pair;

    (void)state;
    pair_init(&pair);
    atomic_store(&pair.hosts[0]->forbid_attach, true);
    atomic_store(&pair.hosts[1]->forbid_attach, true);
    pair_connect(&pair);
    assert_int_equal(pair.info.state, YB_SHM_UP);
    assert_false(pair.info.attach);
    assert_false(pair.info.attach_theirs);
    assert_non_null(strstr(pair.info.why_no_attach, "forbidden; see kernel.yama.ptrace_scope"));
    pair_fini(&pair);
}

static void
check_tickets(bool attach, bool ask)
{
    struct pair pair;
    struct yb_shm_session *target;
    uint32_t slot;
    uint64_t ticket;

    pair_init(&pair);
    atomic_store(&pair.hosts[1]->forbid_attach, !attach);
    pair_connect(&pair);
    target = target_of(&pair);
    EXPECT_OK(yb_shm_host_take_tickets(pair.hosts[0], &slot));
    ticket = yb_shm_host_issue(pair.hosts[0], slot);
    EXPECT_OK(yb_shm_session_ticket(target, slot, ticket, ask));
    assert_int_equal(yb_shm_session_ticket(target, slot, ticket + 1, ask), YB_STALE);
    assert_int_equal(yb_shm_session_ticket(target, slot + 1, ticket, ask), YB_STALE);
    assert_int_equal(yb_shm_session_ticket(target, YB_SHM_TICKETS, ticket, ask), YB_STALE);
    yb_shm_host_revoke(pair.hosts[0], slot);
    assert_int_equal(yb_shm_session_ticket(target, slot, ticket, ask), YB_STALE);
    assert_int_not_equal(yb_shm_host_issue(pair.hosts[0], slot), ticket);
    yb_shm_host_revoke(pair.hosts[0], slot);
    yb_shm_host_give_tickets(pair.hosts[0], slot);
    yb_shm_session_unref(target);
    pair_fini(&pair);
}

static void
test_shm__a_ticket_counts_until_it_is_revoked(void **state)
{
    (void)state;
    check_tickets(true, true);
    check_tickets(true, false);
    check_tickets(false, false);
}

/* Register shared memory with a table, at an offset into its descriptor. */
static uint64_t
register_shared(struct yb_region_table *regions, struct yb_shared **shared_out, uint32_t access)
{
    const struct yb_shared_options options = {.length = 4 * 4096, .numa_node = YB_SHARED_NUMA_ANY};
    struct yb_region_info info = {.length = 2 * 4096, .access = access};
    uint64_t id;

    EXPECT_OK(yb_shared_create(&options, shared_out, NULL, 0));
    info.base = (uint8_t *)yb_shared_info(*shared_out).base + 4096;
    info.backing.fd = yb_shared_info(*shared_out).fd;
    info.backing.offset = 4096;
    memset(yb_shared_info(*shared_out).base, 0x11, 4 * 4096);
    memset(info.base, 0x22, 2 * 4096);
    EXPECT_OK(yb_region_register(regions, &info, &id));
    return id;
}

static enum yb_shm_loan
pin(struct pair *pair, uint64_t region, struct yb_shm_mapped *mapped)
{
    return yb_shm_session_pin(pair->session, region, true, mapped);
}

/* How a loan stands; it is not left pinned. */
static enum yb_shm_loan
loan_of(struct yb_shm_session *session, uint64_t region)
{
    struct yb_shm_mapped mapped;
    enum yb_shm_loan loan = yb_shm_session_pin(session, region, false, &mapped);

    if (loan == YB_SHM_LOAN_READY) {
        yb_shm_session_unpin(session, region);
    }
    return loan;
}

static void
test_shm__a_shared_region_is_lent_for_reading_until_it_is_gone(void **state)
{
    struct pair pair;
    struct yb_shared *shared;
    struct yb_shm_mapped mapped = {0};
    uint64_t region;
    void *base;

    (void)state;
    pair_init(&pair);
    region = register_shared(pair.regions[1], &shared, YB_REGION_READ);
    base = (uint8_t *)yb_shared_info(shared).base + 4096;
    pair_connect(&pair);
    assert_int_equal(pin(&pair, region, &mapped), YB_SHM_LOAN_ASKED);
    AWAIT(&pair, pin(&pair, region, &mapped) == YB_SHM_LOAN_READY);
    assert_int_equal(mapped.base, (uintptr_t)base);
    assert_int_equal(mapped.length, 2 * 4096);
    assert_memory_equal(mapped.bytes, base, 2 * 4096);
    assert_int_not_equal(mprotect((void *)(uintptr_t)mapped.bytes, 4096, PROT_READ | PROT_WRITE),
                         0);
    EXPECT_OK(yb_region_unregister(pair.regions[1], base, 0));
    yb_shared_destroy(&shared);
    AWAIT(&pair, loan_of(pair.session, region) == YB_SHM_LOAN_NONE);
    assert_int_equal(mapped.bytes[0], 0x22); /* It is pinned, and stays for so long. */
    yb_shm_session_unpin(pair.session, region);
    pair_fini(&pair);
}

static void
test_shm__what_must_not_be_read_is_not_lent(void **state)
{
    struct pair pair;
    struct yb_shared *shared;
    struct yb_shm_mapped mapped;
    struct yb_region_info info = {.length = 4096, .access = 3, .backing.fd = -1};
    uint64_t write_only;
    uint64_t ordinary;

    (void)state;
    pair_init(&pair);
    write_only = register_shared(pair.regions[1], &shared, YB_REGION_WRITE);
    info.base = calloc(1, 4096);
    EXPECT_OK(yb_region_register(pair.regions[1], &info, &ordinary));
    pair_connect(&pair);
    AWAIT(&pair, pin(&pair, write_only, &mapped) == YB_SHM_LOAN_REFUSED);
    AWAIT(&pair, pin(&pair, ordinary, &mapped) == YB_SHM_LOAN_REFUSED);
    AWAIT(&pair, pin(&pair, 12345, &mapped) == YB_SHM_LOAN_REFUSED);
    pair_fini(&pair);
    yb_shared_destroy(&shared);
    free(info.base);
}

static void
test_shm__an_initiator_lends_what_it_writes_from(void **state)
{
    struct pair pair;
    struct yb_shared *shared;
    struct yb_shm_session *target;
    struct yb_shm_mapped mapped;
    uint64_t region;

    (void)state;
    pair_init(&pair);
    region = register_shared(pair.regions[0], &shared, 3);
    pair_connect(&pair);
    AWAIT(&pair, yb_shm_session_lend(pair.session, region) == YB_SHM_LOAN_READY);
    target = target_of(&pair);
    assert_int_equal(yb_shm_session_pin(target, region, false, &mapped), YB_SHM_LOAN_READY);
    assert_int_equal(mapped.bytes[0], 0x22);
    yb_shm_session_unpin(target, region);
    yb_shm_session_unref(target);
    pair_fini(&pair);
    yb_shared_destroy(&shared);
}

/* ---- the catalogue --------------------------------------------------------------------------- */

static void
test_shm__the_catalogue_finds_what_a_list_finds(void **state)
{
    static struct yb_shm_catalogue catalogue;
    uint64_t owner[256] = {0}; /* Which region covers each address. */
    uint64_t random = unit_seed("catalogue");

    (void)state;
    yb_shm_catalogue_clear(&catalogue);
    for (uint32_t round = 1; round < 20000; round++) {
        uint64_t base = unit_random(&random) % 240;
        struct yb_shm_entry entry = {
            .region = round, .base = base, .length = 1 + unit_random(&random) % 12, .access = 1};
        uint64_t probe = unit_random(&random) % 256;
        const struct yb_shm_entry *found;

        if (unit_random(&random) % 3 == 0 && owner[probe] != 0) {
            uint64_t victim = owner[probe];

            yb_shm_catalogue_forget(&catalogue, victim);
            for (uint32_t i = 0; i < 256; i++) {
                owner[i] = owner[i] == victim ? 0 : owner[i];
            }
        } else {
            EXPECT_OK(yb_shm_catalogue_add(&catalogue, &entry));
            for (uint64_t i = base; i < base + entry.length; i++) {
                uint64_t victim = owner[i];

                for (uint32_t k = 0; victim != 0 && k < 256; k++) {
                    owner[k] = owner[k] == victim ? 0 : owner[k]; /* G1 */
                }
            }
            for (uint64_t i = base; i < base + entry.length; i++) {
                owner[i] = round;
            }
        }
        probe = unit_random(&random) % 256;
        found = yb_shm_catalogue_find(&catalogue, YB_REGION_BY_ADDRESS, probe);
        assert_int_equal(found == NULL ? 0 : found->region, owner[probe]);
        if (owner[probe] != 0) {
            found = yb_shm_catalogue_find(&catalogue, owner[probe], 0);
            assert_non_null(found);
        }
    }
}

static void
test_shm__the_catalogue_judges_ranges_without_overflow(void **state)
{
    const struct yb_shm_entry entry = {.region = 5, .base = 1000, .length = 100, .access = 1};
    uint64_t at;

    (void)state;
    EXPECT_OK(yb_shm_catalogue_judge(&entry, 5, 90, 10, 1, &at));
    assert_int_equal(at, 1090);
    EXPECT_OK(yb_shm_catalogue_judge(&entry, YB_REGION_BY_ADDRESS, 1000, 100, 1, &at));
    assert_int_equal(at, 1000);
    assert_int_equal(yb_shm_catalogue_judge(&entry, 5, 90, 11, 1, &at), YB_INVALID);
    assert_int_equal(yb_shm_catalogue_judge(&entry, 5, UINT64_MAX - 5, 10, 1, &at), YB_INVALID);
    assert_int_equal(yb_shm_catalogue_judge(&entry, 5, 50, UINT64_MAX - 10, 1, &at), YB_INVALID);
    assert_int_equal(yb_shm_catalogue_judge(&entry, 5, 0, 10, 2, &at), YB_DENIED);
}

/* What a process was asked is not in doubt once it has ended, and it closes its sockets before. */
static void
test_shm__a_process_that_ends_is_seen_to(void **state)
{
    siginfo_t told;
    int orders[2];
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(orders), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;

        (void)close(orders[1]);
        (void)!read(orders[0], &byte, 1);
        _exit(0);
    }
    assert_false(yb_shm_attach_ending(getpid()));
    assert_false(yb_shm_attach_ending(pid));
    assert_int_equal(close(orders[0]) | close(orders[1]), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &told, WEXITED | WNOWAIT), 0);
    assert_true(yb_shm_attach_ending(pid));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(yb_shm_attach_ending(pid));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm__two_engines_of_one_host_prove_each_other),
        cmocka_unit_test(test_shm__a_token_that_was_not_given_opens_nothing),
        cmocka_unit_test(test_shm__a_token_answers_to_its_identity_only),
        cmocka_unit_test(test_shm__a_page_with_another_nonce_is_refused),
        cmocka_unit_test(test_shm__the_nonce_must_be_read_back_from_the_process_on_the_socket),
        cmocka_unit_test(test_shm__strangers_are_shown_the_door),
        cmocka_unit_test(test_shm__a_page_that_is_short_or_can_shrink_is_not_mapped),
        cmocka_unit_test(test_shm__without_attach_a_session_still_lends),
        cmocka_unit_test(test_shm__a_ticket_counts_until_it_is_revoked),
        cmocka_unit_test(test_shm__a_shared_region_is_lent_for_reading_until_it_is_gone),
        cmocka_unit_test(test_shm__what_must_not_be_read_is_not_lent),
        cmocka_unit_test(test_shm__an_initiator_lends_what_it_writes_from),
        cmocka_unit_test(test_shm__the_catalogue_finds_what_a_list_finds),
        cmocka_unit_test(test_shm__the_catalogue_judges_ranges_without_overflow),
        cmocka_unit_test(test_shm__a_process_that_ends_is_seen_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
