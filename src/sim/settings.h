/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.h -- what is simulated, as words: one table for the command line, for files of
 * experiments and for their help.
 *
 * A setting is a name and a text. yb_settings_set() understands the text, yb_settings_scenario()
 * turns them all into a scenario once model and devices are known.
 *
 * Sizes are bytes with a suffix (`960G`, powers of 1000), or tokens (`3Mtok`). Rates of the network
 * are bits (`100G`), those of buses and disks bytes (`6G`). Devices are a count and a name
 * (`8xa800`).
 *
 * Threads   Any thread, each its own settings.
 * Memory    A plain struct; names are copied.
 */
#ifndef YB_SIM_SETTINGS_H
#define YB_SIM_SETTINGS_H

#include "sim/simulator.h"

#define YB_SETTINGS_TEXT_MAX    48u
#define YB_SETTINGS_MESSAGE_MAX 256u

/*    member, name, kind, default, argument, help. In this order in help. */
/* clang-format off */
#define YB_SETTINGS_MAP(X)                                                                         \
    X(instances, "instances", COUNT, "16", "N", "engines; disaggregated: those that prefill")      \
    X(decode, "decode", COUNT, "0", "N",                                                           \
      "disaggregated: engines that decode; 0: answers end with their first token")                 \
    X(mode, "mode", TEXT, "coupled", "MODE", "coupled, disaggregated or time-sliced")              \
    X(policy, "policy", TEXT, "ready", "NAME", "of routing")                                       \
    X(admission, "admission", TEXT, "none", "NAME", "who is rejected")                             \
    X(conductors, "conductors", COUNT, "1", "N", "schedulers side by side")                        \
    X(report_ms, "report-ms", REAL, "0", "MS",                                                     \
      "how often an engine says how it is; 0: before each decision")                               \
    X(model, "model", TEXT, "llama-3-70b", "NAME", "what the engines run")                         \
    X(gpu, "gpu", TEXT, "8xa800", "NxNAME", "what they run it on")                                 \
    X(chunk, "chunk", COUNT, "2048", "TOKENS",                                                     \
      "of prefill in a step beside decode; 0: whole prompts")                                      \
    X(batch, "batch", COUNT, "256", "N", "answers in one step, at most")                           \
    X(base_ms, "prefill-base-ms", REAL, "0", "MS",                                                 \
      "added to each prefill, whatever the model's table says")                                    \
    X(net, "net", RATE, "100G", "BITS/S", "port of a node; 0: none")                               \
    X(net_us, "net-us", REAL, "20", "US", "until the first byte from a peer")                      \
    X(rack, "rack-nodes", COUNT, "0", "N", "nodes in a rack; 0: no racks")                         \
    X(uplink, "uplink", RATE, "400G", "BITS/S", "of a rack, each way")                             \
    X(bus, "bus", RATE, "0", "BYTES/S",                                                            \
      "from dram to all devices of a node; 0: as the table of devices says")                       \
    X(device_cache, "device-cache", SIZE, "-1", "SIZE",                                            \
      "of each engine's devices, for earlier requests; -1: half of what weights leave")            \
    X(device_room, "device-room", SIZE, "-1", "SIZE",                                              \
      "of each engine's devices, for those that run; -1: what is left, 0: no limit")               \
    X(pool, "pool", SIZE, "1T", "SIZE", "of dram on each node; 0: no pool, nothing is fetched")    \
    X(ssd, "ssd", SIZE, "0", "SIZE", "of ssd on each node")                                        \
    X(ssd_rate, "ssd-rate", RATE, "6G", "BYTES/S", "of a node's ssd")                              \
    X(ssd_us, "ssd-us", REAL, "100", "US", "until the first byte from ssd")                        \
    X(object_rate, "object-rate", RATE, "0", "BYTES/S",                                            \
      "from an object store to a node; 0: there is none")                                          \
    X(object_ms, "object-ms", REAL, "20", "MS", "until the first byte from there")                 \
    X(eviction, "eviction", TEXT, "lru", "NAME", "what leaves a tier")                             \
    X(apart, "apart", FLAG, "no", "yes|no",                                                        \
      "what the pool has lies anywhere in it: loads and what is kept pass the network")            \
    X(no_classes, "no-classes", FLAG, "no", "yes|no", "all transfers are of one class")            \
    X(no_chains, "no-chains", FLAG, "no", "yes|no",                                                \
      "tiers are not told which block follows which")                                              \
    X(ttft_slo, "ttft-slo", REAL, "0", "S", "objective for the first token; 0: none")              \
    X(tpot_slo, "tpot-slo-ms", REAL, "0", "MS", "objective for each further token; 0: none")       \
    X(threshold, "fetch-threshold", REAL, "0", "RATIO",                                            \
      "policy mooncake: fetch from whom has so many times more")                                   \
    X(near_best, "near-best", REAL, "0.02", "SHARE",                                               \
      "policy ready: of places within that share of the best first token the least busy")          \
    X(rack_cost, "rack-cost-us", REAL, "0", "US",                                                  \
      "policy ready: what a transfer between racks costs beside its time")                         \
    X(weight, "weight", REAL, "0", "W", "of policies that have one; 0: theirs")                    \
    X(spread, "spread", COUNT, "0", "N", "of policies that bound how loads differ; 0: theirs")     \
    X(in_order, "in-order", FLAG, "no", "yes|no",                                                  \
      "engines begin requests in the order of coming, loaded or not")                              \
    X(no_overlap, "no-overlap", FLAG, "no", "yes|no", "nothing is computed before all is loaded")  \
    X(no_begin, "no-look", FLAG, "no", "yes|no",                                                   \
      "engines do not look for blocks when they begin a request")                                  \
    X(recheck, "recheck", FLAG, "no", "yes|no",                                                    \
      "requests are refused after their prefill if decode is full then")                           \
    X(no_detector, "no-detector", FLAG, "no", "yes|no", "policy lmetric: look for no hotspots")    \
    X(no_split, "no-split", FLAG, "no", "yes|no", "policy ready: load all there is, or nothing")   \
    X(no_ready, "no-ready", FLAG, "no", "yes|no", "policy ready: take each hit for ready")         \
    X(no_soon, "no-soon", FLAG, "no", "yes|no",                                                    \
      "policy ready: do not wait for what others compute")                                         \
    X(fetch_none, "fetch-none", FLAG, "no", "yes|no", "nothing is fetched from other nodes")
/* clang-format on */

enum yb_settings_kind {
    YB_SETTINGS_COUNT,
    YB_SETTINGS_REAL,
    YB_SETTINGS_RATE,
    YB_SETTINGS_SIZE,
    YB_SETTINGS_FLAG,
    YB_SETTINGS_TEXT,
};

/* What a setting is, once it is understood. */
struct yb_settings_value {
    double number;
    bool tokens; /* A size in tokens. */
    char text[YB_SETTINGS_TEXT_MAX];
};

struct yb_settings {
#define X(member, name, kind, value, argument, help) struct yb_settings_value member;
    YB_SETTINGS_MAP(X)
#undef X
    uint64_t seed;
};

struct yb_settings_row {
    const char *name;
    enum yb_settings_kind kind;
    const char *value; /* The default. */
    const char *argument;
    const char *help;
};

/* Return row `index` of the table; NULL past its end. */
const struct yb_settings_row *yb_settings_row(uint32_t index);

/* Set all to their defaults. */
void yb_settings_init(struct yb_settings *settings);

/* Set one. Fails with NOT_FOUND (no such name) or INVALID; `message` then says what is wrong and
 * what is allowed, and nothing has changed. */
YB_CHECKED enum yb_status yb_settings_set(struct yb_settings *settings, const char *name,
                                          const char *text, char message[YB_SETTINGS_MESSAGE_MAX]);

/* Make a scenario, which borrows names of the settings. `catalog` may be NULL: the built-in one.
 * Fails with INVALID (the message says why) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_settings_scenario(const struct yb_settings *settings,
                                               const struct yb_sched_catalog *catalog,
                                               struct yb_scenario *scenario_out,
                                               char message[YB_SETTINGS_MESSAGE_MAX]);

#endif /* YB_SIM_SETTINGS_H */
