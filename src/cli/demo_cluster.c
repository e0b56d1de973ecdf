/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/demo_cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/folder.h"
#include "cli/measure.h"

#define WORDS_MAX  64u
#define WORD_BYTES 512u
#define ALL_NS     (30 * YB_NS_PER_S) /* Until the conductor knows everybody. */
#define LOOK_NS    (20 * YB_NS_PER_MS)
#define SSD_BYTES  "256m"
#define RECORDS    "262144"
#define HEAT_MS    "1000" /* Time passes faster here than where the default is meant for. */
#define ANYWHERE   "127.0.0.1:0"
#define DIRECTORY  0u /* Which server it is; the nodes come next, if there is a pool. */
#define SWEEPS_MAX 60u
#define SWEEP_NS   (500 * YB_NS_PER_MS)

/* ---- starting -------------------------------------------------------------------------------- */

/* Words of a command line, which are kept until it was run. */
struct line {
    char texts[WORDS_MAX][WORD_BYTES];
    const char *words[WORDS_MAX + 1];
    uint32_t count;
};

static void
add(struct line *line, const char *word)
{
    YB_ASSERT(line->count < WORDS_MAX && strlen(word) < WORD_BYTES);
    (void)snprintf(line->texts[line->count], WORD_BYTES, "%s", word);
    line->words[line->count] = line->texts[line->count];
    line->words[++line->count] = NULL;
}

static void
add_two(struct line *line, const char *option, const char *value)
{
    add(line, option);
    add(line, value);
}

static void
add_number(struct line *line, const char *option, uint64_t value)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRIu64, value);
    add_two(line, option, text);
}

static void
add_path(struct line *line, const char *option, const struct yb_demo_cluster *cluster,
         const char *name)
{
    char path[WORD_BYTES];

    (void)snprintf(path, sizeof(path), "%s/%s", cluster->folder, name);
    add_two(line, option, path);
}

static struct line
begin(const char *command)
{
    struct line line = {.count = 0};

    add(&line, command);
    add(&line, "--json");
    add_two(&line, "--log-level", "error");
    return line;
}

static void
keep_text(const json_t *ready, const char *name, char text_out[YB_ADDRESS_TEXT_BYTES])
{
    const char *text = json_string_value(json_object_get(ready, name));

    (void)snprintf(text_out, YB_ADDRESS_TEXT_BYTES, "%s", text != NULL ? text : "");
}

/* Start it as that server; it goes on while it gets ready. */
static bool
launch_as(struct yb_demo_cluster *cluster, struct line *line, uint32_t index)
{
    if (!yb_demo_start(line->words, &cluster->servers[index])) {
        (void)snprintf(cluster->why, sizeof(cluster->why), "%.32s did not start", line->words[0]);
        return false;
    }
    return true;
}

static bool
launch(struct yb_demo_cluster *cluster, struct line *line)
{
    YB_ASSERT(cluster->server_count < YB_DEMO_PROCESSES);
    if (!launch_as(cluster, line, cluster->server_count)) {
        return false;
    }
    cluster->server_count++;
    return true;
}

/* Wait for the line that it serves; NULL: it does not. */
static json_t *
await_ready(struct yb_demo_cluster *cluster, uint32_t index, const char *what)
{
    char text[YB_DEMO_LINE_BYTES];
    json_t *ready =
        yb_demo_ready(&cluster->servers[index], text) ? json_loads(text, 0, NULL) : NULL;

    if (ready == NULL) {
        (void)snprintf(cluster->why, sizeof(cluster->why), "%.32s does not serve", what);
    }
    return ready;
}

/* Have dashboards that are started from now on show the process whose HTTP is there. */
static void
watch(struct yb_demo_cluster *cluster, const char *http)
{
    size_t used = strlen(cluster->watch);

    if (http != NULL) {
        (void)snprintf(cluster->watch + used, sizeof(cluster->watch) - used, "%s%s",
                       used > 0 ? "," : "", http);
    }
}

/* Where it was before, if it was. */
static struct line
directory_line(const struct yb_demo_cluster *cluster)
{
    struct line line = begin("directory");
    bool again = cluster->directory[0] != '\0';

    add_two(&line, "--listen", again ? cluster->directory : ANYWHERE);
    add_two(&line, "--http", again ? cluster->admin : ANYWHERE);
    add_two(&line, "--directory-records", RECORDS);
    add_path(&line, "--cluster-file", cluster, "cluster.json");
    return line;
}

static bool
start_directory(struct yb_demo_cluster *cluster)
{
    struct line line = directory_line(cluster);
    json_t *ready;

    YB_ASSERT(cluster->server_count == DIRECTORY);
    if (!launch(cluster, &line)) {
        return false;
    }
    ready = await_ready(cluster, DIRECTORY, "the directory");
    keep_text(ready, "published", cluster->directory);
    keep_text(ready, "http", cluster->admin);
    watch(cluster, cluster->admin);
    json_decref(ready);
    return ready != NULL;
}

static bool
launch_node(struct yb_demo_cluster *cluster, const struct yb_demo_shape *shape, uint32_t index)
{
    struct line line = begin("node");
    char name[8];
    char url[WORD_BYTES];

    (void)snprintf(name, sizeof(name), "node%u", index);
    add_two(&line, "--listen", ANYWHERE);
    add_two(&line, "--directory", cluster->directory);
    add_two(&line, "--name", name);
    add_two(&line, "--memory", shape->node_memory);
    if (shape->disks) {
        add_path(&line, "--data-dir", cluster, name);
        add_two(&line, "--node-ssd-bytes", SSD_BYTES);
    }
    (void)snprintf(url, sizeof(url), "file:%s/objects?far=%s/far", cluster->folder,
                   cluster->folder);
    add_two(&line, "--object-store", url);
    add_two(&line, "--node-object-layout", "packed");
    add_two(&line, "--http", ANYWHERE);
    return launch(cluster, &line);
}

static bool
start_nodes(struct yb_demo_cluster *cluster, const struct yb_demo_shape *shape)
{
    uint32_t first = cluster->server_count;

    for (uint32_t i = 0; i < YB_DEMO_NODES; i++) {
        if (!launch_node(cluster, shape, i)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < YB_DEMO_NODES; i++) {
        json_t *ready = await_ready(cluster, first + i, "a node");

        watch(cluster, json_string_value(json_object_get(ready, "http")));
        json_decref(ready);
        if (ready == NULL) {
            return false;
        }
    }
    return true;
}

static const char *
mode_of(const struct yb_demo_shape *shape)
{
    return shape->coupled ? "coupled" : "disaggregated";
}

static bool
start_conductor(struct yb_demo_cluster *cluster, const struct yb_demo_shape *shape, uint32_t number)
{
    struct line line = begin("conductor");
    json_t *ready;

    add_two(&line, "--http", ANYWHERE);
    add_two(&line, "--mode", mode_of(shape));
    add_number(&line, "--block-tokens", shape->block_tokens);
    add_two(&line, "--conductor-heat-ms", HEAT_MS);
    add_number(&line, "--conductor-number", number);
    add_number(&line, "--ttft", shape->ttft_ms);
    add_number(&line, "--tbt", shape->pace_ms);
    if (cluster->watch[0] != '\0') { /* Its dashboard shows all of the cluster. */
        add_two(&line, "--http-watch", cluster->watch);
    }
    if (shape->pool) {
        add_two(&line, "--directory", cluster->directory);
    } else {
        add(&line, "--standalone");
        add_two(&line, "--policy", "cache-local");
    }
    if (!launch(cluster, &line)) {
        return false;
    }
    ready = await_ready(cluster, cluster->server_count - 1, "a conductor");
    keep_text(ready, "http", cluster->conductors[number]);
    watch(cluster, cluster->conductors[number]);
    json_decref(ready);
    return ready != NULL;
}

/* The first one last: its dashboard shows the others, too. */
static bool
start_conductors(struct yb_demo_cluster *cluster, const struct yb_demo_shape *shape)
{
    bool started = true;

    YB_ASSERT(shape->conductors > 0 && shape->conductors <= YB_DEMO_CONDUCTORS);
    cluster->conductor_first = cluster->server_count;
    cluster->conductor_count = shape->conductors;
    for (uint32_t i = shape->conductors; i > 0 && started; i--) {
        started = start_conductor(cluster, shape, i - 1);
    }
    return started;
}

/* All conductors, as an engine is told of them. */
static void
add_conductors(struct line *line, const struct yb_demo_cluster *cluster)
{
    char urls[WORD_BYTES] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < cluster->conductor_count; i++) {
        used += (size_t)snprintf(urls + used, sizeof(urls) - used, "%shttp://%s", i > 0 ? "," : "",
                                 cluster->conductors[i]);
        YB_ASSERT(used < sizeof(urls));
    }
    add_two(line, "--conductor", urls);
}

static bool
launch_engine(struct yb_demo_cluster *cluster, const struct yb_demo_shape *shape, uint32_t index)
{
    struct yb_demo_engine *engine = &cluster->engines[index];
    struct line line = begin("engine");
    char text[YB_ADDRESS_TEXT_BYTES + 8];
    uint32_t half = shape->engines / 2;
    bool prefill = index < half;
    const char *roles = shape->coupled ? "both" : prefill ? "prefill" : "decode";

    (void)snprintf(engine->name, sizeof(engine->name), "%c%u",
                   shape->coupled ? 'e'
                   : prefill      ? 'p'
                                  : 'd',
                   shape->coupled || prefill ? index : index - half);
    add_two(&line, "--http-listen", ANYWHERE);
    add_two(&line, "--name", engine->name);
    add_two(&line, "--roles", roles);
    add_two(&line, "--mode", mode_of(shape));
    add_two(&line, "--model", shape->model);
    (void)snprintf(text, sizeof(text), "%g", shape->time_scale);
    add_two(&line, "--time-scale", text);
    add_number(&line, "--block-tokens", shape->block_tokens);
    add_number(&line, "--block-bytes", shape->block_bytes);
    add_two(&line, "--parts", "2");
    add_number(&line, "--pool", shape->pool_blocks);
    add_conductors(&line, cluster);
    if (!shape->pool) {
        add(&line, "--no-store");
        return launch(cluster, &line);
    }
    add_two(&line, "--directory", cluster->directory);
    (void)snprintf(text, sizeof(text), "node%u", index % YB_DEMO_NODES);
    add_two(&line, "--node", text);
    if (!shape->classes) {
        add(&line, "--one-class");
    }
    if (!shape->ahead) {
        add(&line, "--late-loads");
    }
    if (shape->load_rate > 0) {
        add_number(&line, "--load-rate", shape->load_rate);
    }
    return launch(cluster, &line);
}

static bool
start_engines(struct yb_demo_cluster *cluster, const struct yb_demo_shape *shape)
{
    uint32_t first = cluster->server_count;

    YB_ASSERT(shape->engines <= YB_DEMO_ENGINES);
    for (uint32_t i = 0; i < shape->engines; i++) {
        if (!launch_engine(cluster, shape, i)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < shape->engines; i++) {
        json_t *ready = await_ready(cluster, first + i, "an engine");

        keep_text(ready, "http", cluster->engines[i].http);
        json_decref(ready);
        if (ready == NULL) {
            return false;
        }
    }
    return true;
}

/* Whether each conductor knows of all of them. */
static bool
all_known(struct yb_curl *curl, const struct yb_demo_cluster *cluster,
          const struct yb_demo_shape *shape)
{
    bool known = true;

    for (uint32_t i = 0; i < cluster->conductor_count && known; i++) {
        json_t *told = yb_ask_by(curl, cluster->conductors[i], "/v1/conductor", NULL, NULL);
        json_int_t instances = json_integer_value(json_object_get(told, "instances"));
        json_int_t nodes = json_integer_value(json_object_get(told, "nodes"));

        json_decref(told);
        known = instances == shape->engines && (!shape->pool || nodes >= YB_DEMO_NODES);
    }
    return known;
}

static bool
await_all(struct yb_demo_cluster *cluster, const struct yb_demo_shape *shape)
{
    const struct yb_clock *clock = yb_clock_system();
    uint64_t until_ns = yb_clock_now(clock) + ALL_NS;
    struct yb_curl *curl = NULL;
    bool known = false;

    if (yb_curl_create(&curl, cluster->why) != YB_OK) {
        return false;
    }
    while (!known && yb_clock_now(clock) < until_ns) {
        known = all_known(curl, cluster, shape);
        if (!known) {
            yb_demo_pause(LOOK_NS);
        }
    }
    if (!known) {
        (void)snprintf(cluster->why, sizeof(cluster->why),
                       "a conductor does not know of all engines and nodes");
    }
    yb_curl_destroy(&curl);
    return known;
}

bool
yb_demo_cluster_far(const struct yb_demo_cluster *cluster, const char *text)
{
    char path[YB_DEMO_FOLDER + 16];
    FILE *file;
    bool done;

    (void)snprintf(path, sizeof(path), "%s/far", cluster->folder);
    file = fopen(path, "we");
    done = file != NULL && fputs(text, file) >= 0;
    return (file == NULL || fclose(file) == 0) && done;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* A process that outlives us, however we end: gigabytes would stay behind otherwise. */
static void
be_sweeper(const char *folder, int fd)
{
    char byte;

    (void)setsid(); /* Ctrl-C is not for it. */
    while (read(fd, &byte, 1) < 0 && errno == EINTR) {
    }
    for (uint32_t i = 0; i < SWEEPS_MAX && !yb_folder_remove(folder); i++) {
        yb_demo_pause(SWEEP_NS); /* The servers, which end with us, may still write. */
    }
    _exit(0);
}

static bool
make_folder(struct yb_demo_cluster *cluster)
{
    int ends[2];

    if (!yb_demo_folder_make(cluster->folder) || pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    cluster->sweeper_fd = ends[1];
    cluster->sweeper = fork();
    if (cluster->sweeper == 0) {
        (void)close(ends[1]);
        be_sweeper(cluster->folder, ends[0]);
    }
    (void)close(ends[0]);
    return cluster->sweeper > 0;
}

/* Remove it, and let the sweeper find nothing. */
static bool
end_folder(struct yb_demo_cluster *cluster)
{
    bool removed = cluster->folder[0] == '\0' || yb_folder_remove(cluster->folder);

    cluster->folder[0] = '\0';
    if (cluster->sweeper_fd > 0) {
        (void)close(cluster->sweeper_fd);
        cluster->sweeper_fd = 0;
    }
    while (cluster->sweeper > 0 && waitpid(cluster->sweeper, NULL, 0) < 0 && errno == EINTR) {
    }
    cluster->sweeper = 0;
    return removed;
}

/* ---- life ------------------------------------------------------------------------------------ */

bool
yb_demo_cluster_start(struct yb_demo_cluster *cluster, const struct yb_cli *cli,
                      const struct yb_demo_shape *shape)
{
    char far[16];

    *cluster = (struct yb_demo_cluster){.cli = cli};
    (void)snprintf(far, sizeof(far), "%u", shape->far_ms);
    if (!make_folder(cluster)) {
        (void)snprintf(cluster->why, sizeof(cluster->why), "no folder in /tmp: %s",
                       strerror(errno));
        return false;
    }
    if (!yb_demo_cluster_far(cluster, far)) {
        (void)snprintf(cluster->why, sizeof(cluster->why), "%s cannot be written in: %s",
                       cluster->folder, strerror(errno));
        return false;
    }
    if (shape->pool && (!start_directory(cluster) || !start_nodes(cluster, shape))) {
        return false;
    }
    return start_conductors(cluster, shape) && start_engines(cluster, shape) &&
           await_all(cluster, shape);
}

/* End a process without a word. */
static void
kill_server(struct yb_demo_cluster *cluster, uint32_t index)
{
    cluster->memory_bytes += yb_measure_peak_bytes(cluster->servers[index].pid);
    yb_demo_kill(&cluster->servers[index]);
}

void
yb_demo_cluster_kill_node(struct yb_demo_cluster *cluster, uint32_t node)
{
    YB_ASSERT(node < YB_DEMO_NODES && cluster->directory[0] != '\0');
    kill_server(cluster, DIRECTORY + 1 + node);
}

bool
yb_demo_cluster_restart_directory(struct yb_demo_cluster *cluster)
{
    struct line line = directory_line(cluster);
    json_t *ready;

    YB_ASSERT(cluster->directory[0] != '\0');
    kill_server(cluster, DIRECTORY);
    if (!launch_as(cluster, &line, DIRECTORY)) {
        return false;
    }
    ready = await_ready(cluster, DIRECTORY, "the directory that was started again");
    json_decref(ready);
    return ready != NULL;
}

int
yb_demo_cluster_cut(const struct yb_demo_cluster *cluster, struct yb_demo_links *links,
                    double share)
{
    pid_t pids[YB_DEMO_PROCESSES];
    uint32_t count = 0;

    for (uint32_t i = 0; i < cluster->server_count; i++) {
        bool conductor = i >= cluster->conductor_first &&
                         i < cluster->conductor_first + cluster->conductor_count;

        if (cluster->servers[i].pid > 0 && !conductor) {
            pids[count++] = cluster->servers[i].pid;
        }
    }
    return yb_demo_links_cut(links, pids, count, share);
}

bool
yb_demo_cluster_stop(struct yb_demo_cluster *cluster)
{
    bool well = true;

    for (uint32_t i = cluster->server_count; i > 0; i--) {
        struct yb_demo_server *server = &cluster->servers[i - 1];

        if (server->pid > 0) {
            cluster->memory_bytes += yb_measure_peak_bytes(server->pid);
            (void)kill(server->pid, SIGTERM);
            well = yb_demo_reap(server) && well;
        }
    }
    cluster->server_count = 0;
    well = end_folder(cluster) && well;
    return well;
}
