/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the doctor says what is there, what is used, and what a missing thing
 * costs; and one probe really tries on this machine.
 * Method: a machine made of a few files in a folder of the test's own, and tries
 * that answer what the test wants; each test changes one thing.
 */
#include "unit.h"

#include <errno.h>
#include <ftw.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "cli/doctor.h"

/* What the made-up machine answers; the tries have no argument to find it by. */
static struct {
    int ring;
    int child;
    int congestion;
    int pidfd;
    int gpus;
    uint64_t files_soft;
    uint64_t memlock_soft;
} machine;

static char root[64];
static struct yb_config config;

static int
try_ring(void)
{
    return machine.ring;
}

static int
try_child(void)
{
    return machine.child;
}

static int
try_congestion(const char *name)
{
    assert_string_equal(name, config.net_congestion);
    return machine.congestion;
}

static int
try_pidfd(void)
{
    return machine.pidfd;
}

static int
try_gpus(unsigned *count_out)
{
    *count_out = 2;
    return machine.gpus;
}

static int
try_limit(int resource, uint64_t *soft_out, uint64_t *hard_out)
{
    *soft_out = resource == RLIMIT_NOFILE ? machine.files_soft : machine.memlock_soft;
    *hard_out = UINT64_MAX;
    return 0;
}

static int
try_filesystem(const char *path, uint64_t *bytes_out)
{
    assert_int_equal(strncmp(path, root, strlen(root)), 0);
    *bytes_out = 2ull << 30;
    return 0;
}

static const struct yb_doctor_tries tries = {
    .make_ring = try_ring,
    .read_child = try_child,
    .set_congestion = try_congestion,
    .open_pidfd = try_pidfd,
    .count_gpus = try_gpus,
    .limit = try_limit,
    .filesystem_bytes = try_filesystem,
};

static void
put(const char *path, const char *text)
{
    char whole[512];
    FILE *file;

    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *at = whole + strlen(root) + 1; *at != '\0'; at++) {
        if (*at == '/') {
            *at = '\0';
            (void)mkdir(whole, 0700);
            *at = '/';
        }
    }
    file = fopen(whole, "we");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int
remove_entry(const char *path, const struct stat *found, int kind, struct FTW *place)
{
    (void)found;
    (void)kind;
    (void)place;
    return remove(path);
}

static int
make_machine(void **state)
{
    (void)state;
    memset(&machine, 0, sizeof(machine));
    machine.files_soft = 1 << 20;
    machine.memlock_soft = UINT64_MAX;
    yb_config_init(&config);
    snprintf(root, sizeof(root), "/tmp/yuebing-doctor-XXXXXX");
    assert_non_null(mkdtemp(root));
    put("/sys/devices/system/cpu/online", "0-3,8,10-11\n");
    put("/sys/devices/system/node/node0/cpulist", "0-3\n");
    put("/sys/devices/system/node/node1/cpulist", "8,10-11\n");
    put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
    put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
    put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "500\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put("/sys/class/infiniband/mlx5_0/node_type", "1\n");
    put("/proc/cpuinfo", "processor : 0\nflags\t\t: fpu sse4_2 pclmulqdq avx512f\nbugs : none\n");
    put("/proc/meminfo",
        "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n");
    put("/proc/self/cgroup", "0::/box\n");
    put("/sys/fs/cgroup/box/memory.max", "max\n");
    put("/proc/sys/kernel/io_uring_disabled", "0\n");
    put("/proc/sys/kernel/yama/ptrace_scope", "1\n");
    put("/proc/sys/net/ipv4/tcp_congestion_control", "bbr\n");
    put("/proc/sys/net/ipv4/tcp_available_congestion_control", "reno bbr cubic\n");
    put("/proc/sys/net/core/somaxconn", "4096\n");
    put("/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n");
    put("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
    return 0;
}

static int
drop_machine(void **state)
{
    (void)state;
    return nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static struct yb_doctor_row
probe(const char *what)
{
    struct yb_doctor doctor = {.root = root, .tries = &tries, .config = &config};
    struct yb_doctor_row row;

    for (unsigned i = 0; i < yb_doctor_count(); i++) {
        yb_doctor_probe(&doctor, i, &row);
        if (strcmp(row.what, what) == 0) {
            return row;
        }
    }
    fail_msg("no probe is called %s", what);
    return row;
}

static void
expect(const char *what, enum yb_doctor_state state, const char *found, const char *use)
{
    struct yb_doctor_row row = probe(what);

    if (row.state != state || strstr(row.found, found) == NULL || strstr(row.use, use) == NULL) {
        fail_msg("%s: %s, \"%s\", \"%s\"; expected %s, \"%s\", \"%s\"", what,
                 yb_doctor_state_name(row.state), row.found, row.use, yb_doctor_state_name(state),
                 found, use);
    }
}

static void
test_doctor__a_good_machine_is_read_from_its_files(void **state)
{
    (void)state;
    expect("cpu cores", YB_DOCTOR_OK, "7 online", "1 worker");
    expect("numa nodes", YB_DOCTOR_UNUSED, "2 (node", "--node-numa");
    expect("memory", YB_DOCTOR_OK, "16.0 GiB, 8.0 GiB available", "buffers");
    expect("control group limits", YB_DOCTOR_OK, "version 2, no memory limit", "machine");
    expect("huge pages, 2 MiB", YB_DOCTOR_UNUSED, "500 free of 512", "--node-huge-pages");
    expect("huge pages, 1 GiB", YB_DOCTOR_UNUSED, "not offered", "");
    expect("transparent huge pages", YB_DOCTOR_UNUSED, "madvise", "");
    expect("locked memory limit", YB_DOCTOR_UNUSED, "unlimited", "");
    expect("/dev/shm", YB_DOCTOR_UNUSED, "2.0 GiB", "");
    expect("open files limit", YB_DOCTOR_OK, "1048576", "16384 connections");
    expect("io_uring", YB_DOCTOR_OK, "can be made", "net.io auto");
    expect("cross-memory attach", YB_DOCTOR_DEGRADED, "strangers", "first peer");
    expect("pidfd", YB_DOCTOR_OK, "offered", "has ended");
    expect("congestion control", YB_DOCTOR_OK, "bbr by default; reno bbr cubic",
           "cubic per socket");
    expect("listen backlog", YB_DOCTOR_OK, "4096", "listening");
    expect("tcp send buffer", YB_DOCTOR_OK, "4.0 MiB", "");
    expect("tcp receive buffer", YB_DOCTOR_OK, "6.0 MiB", "");
    expect("rdma devices", YB_DOCTOR_UNUSED, "1 (mlx5_0)", "TCP");
    expect("cuda driver", YB_DOCTOR_OK, "2 devices", "device memory");
    expect("clock source", YB_DOCTOR_OK, "tsc", "without a system call");
    assert_non_null(strstr(probe("cpu instructions").found, "sse4_2 pclmulqdq avx512f"));
}

static void
test_doctor__a_refused_ring_says_what_is_used_instead_and_how_to_get_it(void **state)
{
    (void)state;
    machine.ring = EPERM;
    expect("io_uring", YB_DOCTOR_MISSING, "Operation not permitted", "by epoll");
    assert_non_null(strstr(probe("io_uring").advice, "seccomp"));
    put("/proc/sys/kernel/io_uring_disabled", "2\n");
    assert_non_null(strstr(probe("io_uring").advice, "kernel.io_uring_disabled=0"));
    config.net_io = YB_CONFIG_NET_IO_IO_URING;
    expect("io_uring", YB_DOCTOR_MISSING, "", "cannot start");
    machine.ring = 0;
    config.net_io = YB_CONFIG_NET_IO_EPOLL;
    expect("io_uring", YB_DOCTOR_UNUSED, "can be made", "asks for epoll");
}

static void
test_doctor__what_a_setting_makes_worse_is_degraded_with_a_remedy(void **state)
{
    static const char *const touched[] = {"open files limit", "listen backlog", "tcp send buffer",
                                          "cpu cores",        "clock source",   "memory"};

    (void)state;
    machine.files_soft = 1024;
    config.net_workers = 8;
    put("/proc/sys/net/core/somaxconn", "128\n");
    put("/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t262144\n");
    put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 1024 kB\n");
    for (size_t i = 0; i < sizeof(touched) / sizeof(touched[0]); i++) {
        expect(touched[i], YB_DOCTOR_DEGRADED, "", "");
        assert_string_not_equal(probe(touched[i]).advice, "");
    }
    assert_non_null(strstr(probe("open files limit").advice, "ulimit -n 16640"));
    assert_non_null(strstr(probe("cpu cores").advice, "at most 7"));
}

static void
test_doctor__what_keeps_processes_from_sharing_is_said_with_its_remedy(void **state)
{
    (void)state;
    assert_non_null(strstr(probe("cross-memory attach").advice, "kernel.yama.ptrace_scope=1"));
    put("/proc/sys/kernel/yama/ptrace_scope", "0\n");
    expect("cross-memory attach", YB_DOCTOR_OK, "a child", "directly");
    machine.child = EPERM;
    expect("cross-memory attach", YB_DOCTOR_MISSING, "Operation not permitted", "over tcp");
    assert_non_null(strstr(probe("cross-memory attach").advice, "seccomp"));
    machine.pidfd = ENOSYS;
    expect("pidfd", YB_DOCTOR_MISSING, "not implemented", "over tcp");
    assert_non_null(strstr(probe("pidfd").advice, "pidfd_open"));
    machine.gpus = ENODEV;
    expect("cuda driver", YB_DOCTOR_MISSING, "does not start", "host memory");
    machine.gpus = ENOENT;
    expect("cuda driver", YB_DOCTOR_UNUSED, "not installed", "host memory");
}

static void
test_doctor__the_memory_limit_of_either_kind_of_group_is_found(void **state)
{
    (void)state;
    put("/sys/fs/cgroup/box/memory.max", "1073741824\n");
    expect("control group limits", YB_DOCTOR_OK, "version 2, memory limit 1.0 GiB", "");
    /* In a container the group's own folder is the mount. */
    put("/proc/self/cgroup", "0::/elsewhere\n");
    put("/sys/fs/cgroup/memory.max", "67108864\n");
    expect("control group limits", YB_DOCTOR_DEGRADED, "version 2, memory limit 64.0 MiB", "");
    put("/proc/self/cgroup", "5:cpu,memory:/box\n1:name=systemd:/\n0::/\n");
    put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2147483648\n");
    expect("control group limits", YB_DOCTOR_OK, "version 1, memory limit 2.0 GiB", "");
    put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
    expect("control group limits", YB_DOCTOR_OK, "no memory limit", "");
}

static void
test_doctor__a_congestion_control_that_cannot_be_set_is_missing(void **state)
{
    (void)state;
    machine.congestion = ENOENT;
    expect("congestion control", YB_DOCTOR_MISSING, "bbr by default", "kernel's default");
    assert_non_null(strstr(probe("congestion control").advice, "modprobe tcp_cubic"));
    snprintf(config.net_congestion, sizeof(config.net_congestion), "system");
    expect("congestion control", YB_DOCTOR_OK, "bbr by default", "kernel's default");
}

static void
test_doctor__an_empty_machine_has_every_row_and_an_advice_for_what_is_missing(void **state)
{
    char empty[] = "/tmp/yuebing-doctor-empty-XXXXXX";
    struct yb_doctor doctor = {.root = empty, .tries = &tries, .config = &config};
    struct yb_doctor_row row;

    (void)state;
    machine.ring = ENOSYS;
    machine.child = EPERM;
    machine.congestion = ENOENT;
    machine.pidfd = ENOSYS;
    machine.gpus = ENOENT;
    assert_non_null(mkdtemp(empty));
    assert_int_equal(drop_machine(state), 0);
    snprintf(root, sizeof(root), "%s", empty);
    for (unsigned i = 0; i < yb_doctor_count(); i++) {
        yb_doctor_probe(&doctor, i, &row);
        assert_string_not_equal(row.found, "");
        assert_string_not_equal(row.use, "");
        assert_true(row.state != YB_DOCTOR_MISSING || row.advice[0] != '\0');
        assert_true(row.state != YB_DOCTOR_DEGRADED || row.advice[0] != '\0');
    }
}

static void
test_doctor__files_with_garbage_are_not_believed(void **state)
{
    (void)state;
    put("/sys/devices/system/cpu/online", "many\n");
    expect("cpu cores", YB_DOCTOR_MISSING, "does not say", "");
    put("/sys/devices/system/cpu/online", "3-1\n");
    expect("cpu cores", YB_DOCTOR_MISSING, "does not say", "");
    put("/proc/sys/net/core/somaxconn", "-5\n");
    expect("listen backlog", YB_DOCTOR_MISSING, "does not say", "");
    put("/proc/sys/net/ipv4/tcp_rmem", "x\n");
    expect("tcp receive buffer", YB_DOCTOR_MISSING, "does not say", "");
    put("/proc/meminfo", "nothing\n");
    expect("memory", YB_DOCTOR_MISSING, "does not say", "");
    put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "");
    expect("clock source", YB_DOCTOR_MISSING, "does not say", "");
}

static void
test_doctor__the_real_tries_answer_and_leave_nothing_behind(void **state)
{
    const struct yb_doctor_tries *real = yb_doctor_tries_real();
    uint64_t soft = 0;
    uint64_t hard = 0;
    uint64_t bytes = 0;
    unsigned count = 0;

    (void)state;
    assert_true(real->make_ring() >= 0);
    assert_true(real->read_child() >= 0);
    assert_true(real->count_gpus(&count) >= 0);
    assert_int_equal(real->set_congestion("no-such-thing"), ENOENT);
    assert_int_equal(real->set_congestion("reno"), 0);
    assert_int_equal(real->limit(RLIMIT_NOFILE, &soft, &hard), 0);
    assert_true(soft > 0 && soft <= hard);
    assert_int_equal(real->filesystem_bytes("/", &bytes), 0);
    assert_true(bytes > 0);
    assert_int_not_equal(real->filesystem_bytes("/no/such/folder", &bytes), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_doctor__a_good_machine_is_read_from_its_files,
                                        make_machine, drop_machine),
        cmocka_unit_test_setup_teardown(
            test_doctor__a_refused_ring_says_what_is_used_instead_and_how_to_get_it, make_machine,
            drop_machine),
        cmocka_unit_test_setup_teardown(
            test_doctor__what_a_setting_makes_worse_is_degraded_with_a_remedy, make_machine,
            drop_machine),
        cmocka_unit_test_setup_teardown(
            test_doctor__what_keeps_processes_from_sharing_is_said_with_its_remedy, make_machine,
            drop_machine),
        cmocka_unit_test_setup_teardown(
            test_doctor__the_memory_limit_of_either_kind_of_group_is_found, make_machine,
            drop_machine),
        cmocka_unit_test_setup_teardown(
            test_doctor__a_congestion_control_that_cannot_be_set_is_missing, make_machine,
            drop_machine),
        cmocka_unit_test_setup_teardown(
            test_doctor__an_empty_machine_has_every_row_and_an_advice_for_what_is_missing,
            make_machine, drop_machine),
        cmocka_unit_test_setup_teardown(test_doctor__files_with_garbage_are_not_believed,
                                        make_machine, drop_machine),
        cmocka_unit_test(test_doctor__the_real_tries_answer_and_leave_nothing_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
