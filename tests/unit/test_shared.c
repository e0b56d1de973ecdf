/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants H1 to H3 of memory/shared.h: sealed, populated, and readers only read.
 * Method: real descriptors against the kernel, forged ones against attach, and a child process
 * that gets a descriptor over a socket and compares bytes.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/shared.h"
#include "memory/survivors.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define ODD_BYTES ((1u << 20) + 7)

static struct yb_shared *
shared_of(uint64_t length, bool huge, bool lend_writable)
{
    struct yb_shared_options options = {.length = length,
                                        .huge = huge,
                                        .numa_node = YB_SHARED_NUMA_ANY,
                                        .lend_writable = lend_writable};
    struct yb_shared *shared = NULL;
    char why[512];

    assert_int_equal(yb_shared_create(&options, &shared, why, sizeof(why)), YB_OK);
    assert_true(huge || why[0] == '\0');
    return shared;
}

static int
descriptor_of(const struct yb_shared *shared, bool writable)
{
    int fd = -1;

    assert_int_equal(yb_shared_descriptor(shared, writable, &fd), YB_OK);
    assert_true(fd >= 0);
    return fd;
}

static void
test_shared__an_odd_size_is_whole_pages_zeroed_allocated_and_sealed(void **state)
{
    struct yb_shared *shared = shared_of(ODD_BYTES, false, false);
    struct yb_shared_info info = yb_shared_info(shared);
    const uint8_t *bytes = info.base;
    struct stat file;

    (void)state;
    assert_true(info.length == ODD_BYTES && info.bytes == (1u << 20) + 4096);
    assert_int_equal(info.page_bytes, 4096);
    assert_int_equal(fstat(info.fd, &file), 0);
    assert_true((uint64_t)file.st_size == info.bytes);
    assert_true((uint64_t)file.st_blocks * 512 >= info.bytes);
    for (uint64_t i = 0; i < info.bytes; i++) {
        assert_int_equal(bytes[i], 0);
    }
    assert_int_equal(ftruncate(info.fd, 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(info.fd, (off_t)info.bytes + 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fcntl(info.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    memset(info.base, 7, info.bytes); /* The owner still writes. */
    yb_shared_destroy(&shared);
    assert_null(shared);
}

/* Make a memfd as a hostile or careless peer would. */
static int
forged(uint64_t size, int seals, bool allocate)
{
    int fd = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_true(!allocate || fallocate(fd, 0, 0, (off_t)size) == 0);
    assert_true(seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static void
test_shared__a_readers_descriptor_gives_no_way_to_write(void **state)
{
    struct yb_shared *shared = shared_of(8192, false, false);
    struct yb_shared_info info = yb_shared_info(shared);
    struct yb_shared_view view = {0};
    int fd = descriptor_of(shared, false);
    char path[64];
    char why[256] = "";
    int kernel;
    int again;

    (void)state;
    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_ptr_equal(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(errno, EACCES);
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(yb_shared_attach(fd, 8192, true, &view, why, sizeof(why)), YB_DENIED);
    assert_non_null(strstr(why, "writing"));
    assert_int_equal(yb_shared_attach(fd, 8000, false, &view, why, sizeof(why)), YB_OK);
    assert_int_equal(mprotect(view.base, view.bytes, PROT_READ | PROT_WRITE), -1);
    yb_shared_detach(&view);
    assert_null(view.base);
    /* Opened again for writing: refused by the mode, or of no use because of the seal (root). */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    again = open(path, O_RDWR | O_CLOEXEC);
    assert_true(again >= 0 || errno == EACCES);
    kernel = forged(4096, 0, false);
    assert_int_equal(info.write_sealed, fcntl(kernel, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
    close(kernel);
    assert_true(info.write_sealed || geteuid() != 0);
    if (again >= 0) {
        assert_int_equal(write(again, "x", 1), -1);
        assert_ptr_equal(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0),
                         MAP_FAILED);
        assert_int_equal(fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
        close(again);
    }
    again = -1;
    assert_int_equal(yb_shared_descriptor(shared, true, &again), YB_INVALID);
    assert_int_equal(again, -1);
    close(fd);
    yb_shared_destroy(&shared);
}

/* The child's half: map the descriptor that comes over the socket and compare. */
static int
read_in_child(int socket)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    struct yb_shared_view view;
    int wrong = 0;
    int fd;

    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) {
        return 2;
    }
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    if (yb_shared_attach(fd, ODD_BYTES, false, &view, NULL, 0) != YB_OK) {
        return 3;
    }
    for (uint64_t i = 0; i < ODD_BYTES; i++) {
        wrong |= ((const uint8_t *)view.base)[i] != (uint8_t)(i * 31 + i / 4096);
    }
    yb_shared_detach(&view);
    return wrong;
}

static void
test_shared__another_process_sees_the_same_bytes(void **state)
{
    struct yb_shared *shared = shared_of(ODD_BYTES, false, false);
    uint8_t *bytes = yb_shared_info(shared).base;
    int fd = descriptor_of(shared, false);
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {{0}};
    struct iovec data = {"x", 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    int sockets[2];
    int status;
    pid_t child;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        _exit(read_in_child(sockets[1]));
    }
    for (uint64_t i = 0; i < ODD_BYTES; i++) {
        bytes[i] = (uint8_t)(i * 31 + i / 4096);
    }
    control.header = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    assert_int_equal(sendmsg(sockets[0], &message, 0), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(sockets[0]);
    close(sockets[1]);
    close(fd);
    yb_shared_destroy(&shared);
}

static void
test_shared__a_view_outlives_its_owner(void **state)
{
    struct yb_shared *shared = shared_of(4096, false, false);
    struct yb_shared_view view;
    int fd = descriptor_of(shared, false);

    (void)state;
    memset(yb_shared_info(shared).base, 0x5a, 4096);
    assert_int_equal(yb_shared_attach(fd, 4096, false, &view, NULL, 0), YB_OK);
    close(fd);
    yb_shared_destroy(&shared);
    for (int i = 0; i < 4096; i++) {
        assert_int_equal(((const uint8_t *)view.base)[i], 0x5a);
    }
    yb_shared_detach(&view);
}

static void
test_shared__a_lent_descriptor_writes_what_the_owner_reads(void **state)
{
    struct yb_shared *shared = shared_of(4096, false, true);
    struct yb_shared_view view;
    int fd = descriptor_of(shared, true);

    (void)state;
    assert_false(yb_shared_info(shared).write_sealed);
    assert_int_equal(yb_shared_attach(fd, 4096, true, &view, NULL, 0), YB_OK);
    assert_true(view.writable);
    memset(view.base, 9, 4096);
    assert_int_equal(((const uint8_t *)yb_shared_info(shared).base)[4095], 9);
    yb_shared_detach(&view);
    close(fd);
    yb_shared_destroy(&shared);
}

static void
expect_refusal(int fd, uint64_t length, enum yb_status expected, const char *word)
{
    struct yb_shared_view view = {0};
    char why[256] = "";

    assert_int_equal(yb_shared_attach(fd, length, false, &view, why, sizeof(why)), expected);
    assert_null(view.base);
    assert_non_null(strstr(why, word));
    assert_int_equal(yb_shared_attach(fd, length, false, &view, NULL, 0), expected);
}

static void
test_shared__a_received_descriptor_is_not_believed(void **state)
{
    const int sized = F_SEAL_SHRINK | F_SEAL_GROW;
    struct yb_shared_view view;
    int fd;

    (void)state;
    fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    expect_refusal(fd, 4096, YB_DENIED, "no memfd");
    close(fd);
    expect_refusal(-1, 4096, YB_DENIED, "no memfd");
    fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    expect_refusal(fd, 4096, YB_DENIED, "memfd");
    close(fd);
    fd = forged(8192, 0, true);
    expect_refusal(fd, 4096, YB_DENIED, "not sealed");
    close(fd);
    fd = forged(8192, F_SEAL_GROW, true);
    expect_refusal(fd, 4096, YB_DENIED, "not sealed");
    close(fd);
    fd = forged(8192, F_SEAL_SHRINK, true);
    expect_refusal(fd, 4096, YB_DENIED, "not sealed");
    close(fd);
    fd = forged(8192, sized, false);
    expect_refusal(fd, 4096, YB_DENIED, "have pages");
    close(fd);
    fd = forged(8192, sized, true);
    expect_refusal(fd, 8193, YB_TOO_SMALL, "8192");
    expect_refusal(fd, UINT64_MAX, YB_TOO_SMALL, "8192");
    expect_refusal(fd, 0, YB_INVALID, "no bytes");
    assert_int_equal(yb_shared_attach(fd, 8192, false, &view, NULL, 0), YB_OK);
    yb_shared_detach(&view);
    close(fd);
}

static void
test_shared__a_fork_does_not_inherit_the_mapping(void **state)
{
    struct yb_shared *shared = shared_of(4096, false, false);
    volatile uint8_t *bytes = yb_shared_info(shared).base;
    int status;
    pid_t child;

    (void)state;
    fflush(NULL);
    child = fork();
    if (child == 0) {
        unsigned char resident;

        /* mincore() says ENOMEM of what is not mapped; a touch would be loud under sanitizers. */
        _exit(mincore((void *)(uintptr_t)bytes, 4096, &resident) == -1 && errno == ENOMEM ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    yb_shared_destroy(&shared);
}

static void
test_shared__who_maps_it_after_its_owners_end_is_found_by_its_label(void **state)
{
    struct yb_shared_options options = {.length = ODD_BYTES, .numa_node = YB_SHARED_NUMA_ANY};
    struct yb_shared *shared = NULL;
    struct yb_survivors found;
    struct yb_shared_view view;
    char label[32];
    int fd;

    (void)state;
    (void)snprintf(label, sizeof(label), "test-%d", (int)getpid());
    options.label = label;
    assert_int_equal(yb_shared_create(&options, &shared, NULL, 0), YB_OK);
    fd = descriptor_of(shared, false);
    assert_int_equal(yb_shared_attach(fd, ODD_BYTES, false, &view, NULL, 0), YB_OK);
    close(fd);
    yb_shared_destroy(&shared);
    yb_survivors_find(label, &found);
    assert_true(found.count == 1 && found.pids[0] == getpid() && found.bytes == view.bytes);
    yb_survivors_find("somebody-else", &found);
    assert_int_equal(found.count, 0);
    label[strlen(label) - 1] = '\0'; /* The beginning of a label is another label. */
    yb_survivors_find(label, &found);
    assert_int_equal(found.count, 0);
    yb_shared_detach(&view);
    (void)snprintf(label, sizeof(label), "test-%d", (int)getpid());
    yb_survivors_find(label, &found);
    assert_int_equal(found.count, 0);
}

static void
test_shared__a_line_of_the_kernels_list_is_read_as_it_is(void **state)
{
    (void)state;
    assert_true(yb_survivors_line("7f0000001000-7f0000004000 r--s 00000000 00:01 4711"
                                  "                       /memfd:yuebing-ab (deleted)\n",
                                  "ab") == 0x3000);
    assert_true(yb_survivors_line("1000-4000 r--s 0 00:01 4711 /memfd:yuebing (deleted)", "ab") ==
                0);
    assert_true(
        yb_survivors_line("1000-4000 r--s 0 00:01 4711 /memfd:yuebing-abc (deleted)", "ab") == 0);
    assert_true(yb_survivors_line("1000-4000 r--s 0 00:01 4711 /tmp/memfd:yuebing-ab (deleted)",
                                  "ab") == 0);
    assert_true(
        yb_survivors_line("4000-1000 r--s 0 00:01 4711 /memfd:yuebing-ab (deleted)", "ab") == 0);
    assert_true(yb_survivors_line("1000-4000 r--s 0 00:01 0", "ab") == 0);
    assert_true(yb_survivors_line("", "ab") == 0);
}

static void
test_shared__huge_pages_are_had_or_their_want_is_stated(void **state)
{
    struct yb_shared_options options = {
        .length = (4u << 20) + 1, .huge = true, .numa_node = YB_SHARED_NUMA_ANY};
    struct yb_shared *shared = NULL;
    struct yb_shared_info info;
    uint64_t huge_bytes;
    char why[512] = "";

    (void)state;
    assert_int_equal(yb_shared_create(&options, &shared, why, sizeof(why)), YB_OK);
    info = yb_shared_info(shared);
    huge_bytes = yb_shared_huge_bytes(shared);
    if (why[0] == '\0') {
        assert_int_equal(info.page_bytes, 2u << 20);
        assert_true(info.bytes == 6u << 20 && huge_bytes == info.bytes);
    } else {
        assert_non_null(strstr(why, "3 of 2 MiB"));
        assert_non_null(strstr(why, "vm.nr_hugepages"));
        assert_int_equal(info.page_bytes, 4096);
        assert_true(huge_bytes == UINT64_MAX || huge_bytes <= info.bytes);
    }
    memset(info.base, 1, info.bytes);
    printf("page %u bytes, %llu mapped huge: %s\n", info.page_bytes, (unsigned long long)huge_bytes,
           why);
    yb_shared_destroy(&shared);
}

static uint64_t
huge_of(const char *const *lines, uint32_t count, uintptr_t first, uintptr_t end)
{
    struct yb_shared_smaps smaps = {.first = first, .end = end};

    for (uint32_t i = 0; i < count; i++) {
        yb_shared_smaps_line(&smaps, lines[i]);
    }
    return smaps.found ? smaps.huge_bytes : UINT64_MAX;
}

static void
test_shared__the_kernels_count_of_huge_pages_is_of_these_mappings_alone(void **state)
{
    static const char *const lines[] = {
        "7f0000000000-7f0000800000 rw-s 00000000 00:01 4711      /memfd:yuebing (deleted)\n",
        "Rss:                8192 kB\n",
        "AnonHugePages:         0 kB\n",
        "ShmemPmdMapped:     6144 kB\n",
        "FilePmdMapped:         0 kB\n",
        "VmFlags: rd wr sh mr mw me ms dc hg sd \n",
        "7f0000800000-7f0001000000 rw-s 00800000 00:01 4711      /memfd:yuebing (deleted)\n",
        "ShmemPmdMapped:     2048 kB\n",
        "7f0001000000-7f0001400000 rw-p 00000000 00:00 0 \n",
        "AnonHugePages:      4096 kB\n",
        "ShmemPmdMapped:        0 kB\n",
    };
    const uint32_t count = sizeof(lines) / sizeof(lines[0]);

    (void)state;
    assert_true(huge_of(lines, count, 0x7f0000000000, 0x7f0001000000) == 8u << 20);
    assert_true(huge_of(lines, count, 0x7f0000800000, 0x7f0001000000) == 2u << 20);
    assert_true(huge_of(lines, count, 0x7f0001000000, 0x7f0001400000) == 4u << 20);
    assert_true(huge_of(lines, count, 0x7f0002000000, 0x7f0003000000) == UINT64_MAX);
    assert_true(huge_of(lines, 2, 0x7f0000000000, 0x7f0001000000) == 0);
}

static void
test_shared__a_node_is_a_hint_and_what_is_not_had_is_said(void **state)
{
    struct yb_shared_options options = {.length = 4096, .numa_node = 0};
    struct yb_shared *shared = NULL;
    struct yb_shared_info info;
    char why[512] = "";

    (void)state;
    assert_int_equal(yb_shared_create(&options, &shared, why, sizeof(why)), YB_OK);
    info = yb_shared_info(shared);
    assert_true(info.numa_node == 0 || why[0] != '\0' || info.numa_node == YB_SHARED_NUMA_ANY);
    yb_shared_destroy(&shared);
    options.numa_node = 1023; /* No machine of the tests has it. */
    assert_int_equal(yb_shared_create(&options, &shared, why, sizeof(why)), YB_OK);
    assert_non_null(strstr(why, "node 1023"));
    yb_shared_destroy(&shared);
    options.numa_node = 1024;
    assert_int_equal(yb_shared_create(&options, &shared, why, sizeof(why)), YB_INVALID);
}

/* What the machine can give at this moment. */
static uint64_t
spare_now(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char meminfo[4096];

    assert_non_null(file);
    meminfo[fread(meminfo, 1, sizeof(meminfo) - 1, file)] = '\0';
    fclose(file);
    return yb_shared_spare(meminfo);
}

static void
test_shared__more_than_the_machine_has_is_refused_before_it_is_taken(void **state)
{
    struct yb_shared_options options = {.numa_node = YB_SHARED_NUMA_ANY};
    struct yb_shared *shared = NULL;
    char why[512];
    pid_t child;
    int status = 0;

    (void)state;
    assert_true(yb_shared_spare("MemTotal: 9 kB\nMemAvailable:   5 kB\nSwapFree:  2 kB\n") ==
                7 * 1024);
    assert_true(yb_shared_spare("MemTotal: 9 kB\n") == UINT64_MAX);
    options.length = 2 * spare_now();
    child = fork(); /* The first to be killed, should it be taken. */
    assert_true(child >= 0);
    if (child == 0) {
        FILE *score = fopen("/proc/self/oom_score_adj", "w");

        if (score != NULL) {
            (void)fputs("1000", score);
            (void)fclose(score);
        }
        status = yb_shared_create(&options, &shared, why, sizeof(why)) == YB_NO_MEMORY &&
                 strstr(why, "available") != NULL;
        _exit(status);
    }
    assert_true(waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static void
test_shared__a_limit_is_named_with_the_wanted_size(void **state)
{
    struct yb_shared_options options = {.length = 0, .numa_node = YB_SHARED_NUMA_ANY};
    struct yb_shared *shared = NULL;
    struct rlimit before;
    struct rlimit none;
    char why[512] = "";

    (void)state;
    assert_int_equal(yb_shared_create(&options, &shared, why, sizeof(why)), YB_INVALID);
    options.length = YB_SHARED_BYTES_MAX + 1;
    assert_int_equal(yb_shared_create(&options, &shared, why, sizeof(why)), YB_TOO_LARGE);
    assert_non_null(strstr(why, "70368744177665"));
    options.length = 12345678;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(yb_shared_create(&options, &shared, why, sizeof(why)), YB_NO_MEMORY);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_non_null(strstr(why, "12345678"));
    assert_non_null(strstr(why, "ulimit -n"));
    assert_null(shared);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared__an_odd_size_is_whole_pages_zeroed_allocated_and_sealed),
        cmocka_unit_test(test_shared__a_readers_descriptor_gives_no_way_to_write),
        cmocka_unit_test(test_shared__another_process_sees_the_same_bytes),
        cmocka_unit_test(test_shared__a_view_outlives_its_owner),
        cmocka_unit_test(test_shared__a_lent_descriptor_writes_what_the_owner_reads),
        cmocka_unit_test(test_shared__a_received_descriptor_is_not_believed),
        cmocka_unit_test(test_shared__a_fork_does_not_inherit_the_mapping),
        cmocka_unit_test(test_shared__who_maps_it_after_its_owners_end_is_found_by_its_label),
        cmocka_unit_test(test_shared__a_line_of_the_kernels_list_is_read_as_it_is),
        cmocka_unit_test(test_shared__huge_pages_are_had_or_their_want_is_stated),
        cmocka_unit_test(test_shared__the_kernels_count_of_huge_pages_is_of_these_mappings_alone),
        cmocka_unit_test(test_shared__a_node_is_a_hint_and_what_is_not_had_is_said),
        cmocka_unit_test(test_shared__more_than_the_machine_has_is_refused_before_it_is_taken),
        cmocka_unit_test(test_shared__a_limit_is_named_with_the_wanted_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
