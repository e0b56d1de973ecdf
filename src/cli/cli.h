/* SPDX-License-Identifier: Apache-2.0
 *
 * cli.h -- the program `yuebing`: one row and one file for each subcommand.
 *
 * To add `yuebing frob`: write src/cli/frob.c with
 *
 *     const struct yb_cli_option yb_cli_frob_options[] = {{"depth", "N", "how deep"}, {0}};
 *     int yb_cli_frob(struct yb_cli *cli, int argc, char **argv) { ... }
 *
 * add a row to YB_CLI_COMMAND_MAP and the file to src/cli/meson.build, and run
 * tools/gen/docs.sh. Help, man page, completion and the check of options follow
 * from the row. A command that prints results has --json.
 *
 * The command line is `yuebing COMMAND [options and arguments]`. Options of the
 * table in base/config_table.h are accepted when their section is in the row;
 * a file and the environment may speak of all sections.
 *
 * Exit      0 done; 1 it did not work out; 2 the command line, the environment
 *           or the file is refused.
 * Threads   One; a command may start its own.
 * Memory    struct yb_cli belongs to yb_cli_main and lives until the command returns.
 */
#ifndef YB_CLI_CLI_H
#define YB_CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "base/config.h"
#include "cli/bench_table.h"

#define YB_CLI_EXIT_FAILED  1
#define YB_CLI_EXIT_REFUSED YB_CONFIG_EXIT_REFUSED

/* An option of one command alone; a list of them ends with a row without a name. */
struct yb_cli_option {
    const char *name;     /* Without dashes. */
    const char *argument; /* What its argument is called; NULL: a flag. */
    const char *help;
};

struct yb_cli {
    struct yb_config config;
    bool json;     /* --json was given: print one JSON document and nothing else on `out`. */
    bool terminal; /* `out` is a terminal: colours and progress are welcome. */
    FILE *out;
    FILE *err; /* What went wrong, and progress. */
    const struct yb_cli_command *command;
    struct yb_config_extra extras[YB_CONFIG_EXTRAS_MAX];
    unsigned extra_count;
};

struct yb_cli_command {
    const char *name;
    const char *arguments; /* How its arguments are written, such as "[net]"; "" for none. */
    int arguments_max;
    uint32_t sections; /* Of the configuration, whose options it accepts. */
    bool has_json;
    const char *help; /* One line without a full stop. */
    const struct yb_cli_option *options;
    int (*run)(struct yb_cli *cli, int argc, char **argv);
};

#define YB_CLI_SECTIONS_COMMON (YB_CONFIG_IN(config) | YB_CONFIG_IN(log))
#define YB_CLI_SECTIONS_NET                                                                \
    (YB_CLI_SECTIONS_COMMON | YB_CONFIG_IN(net) | YB_CONFIG_IN(auth) | YB_CONFIG_IN(tls) | \
     YB_CONFIG_IN(cluster) | YB_CONFIG_IN(trace))

#define YB_CLI_SECTIONS_STORE     (YB_CLI_SECTIONS_NET | YB_CONFIG_IN(directory))
#define YB_CLI_SECTIONS_SERVE     (YB_CLI_SECTIONS_STORE | YB_CONFIG_IN(http))
#define YB_CLI_SECTIONS_NODE      (YB_CLI_SECTIONS_SERVE | YB_CONFIG_IN(node))
#define YB_CLI_SECTIONS_CONDUCTOR (YB_CLI_SECTIONS_SERVE | YB_CONFIG_IN(conductor))

/* clang-format off */
/*    name, as it is typed, arguments, max, sections, json, help */
#define YB_CLI_COMMAND_MAP(X)                                                                  \
    X(advise, "advise", "", 0, YB_CLI_SECTIONS_COMMON, true,                                   \
      "say what a model wants of a network, a mode and a pool")                                \
    X(bench, "bench", YB_BENCH_USAGE, 1, YB_CLI_SECTIONS_NODE, true,                           \
      "measure this build beside what the machine can do")                                     \
    X(check, "check", "engine URL_A URL_B", 3, YB_CLI_SECTIONS_STORE, true,                    \
      "say whether one engine finds what another one put, and why not")                        \
    X(conductor, "conductor", "", 0, YB_CLI_SECTIONS_CONDUCTOR, true,                          \
      "run a conductor: where requests run, and what of them is reused")                       \
    X(config, "config", "", 0, YB_CONFIG_IN_ALL, true,                                         \
      "print every parameter, its value and where it comes from")                              \
    X(demo, "demo", "", 0, YB_CLI_SECTIONS_NET, true,                                          \
      "run a workload on whole clusters, and show what a pool saves of it")                    \
    X(directory, "directory", "", 0, YB_CLI_SECTIONS_SERVE, true,                              \
      "run the directory of a store: who is there, and where each block is")                   \
    X(doctor, "doctor", "", 0, YB_CLI_SECTIONS_NET, true,                                      \
      "say what this machine offers, what is used of it and what is missing")                  \
    X(drain, "drain", "NODE", 1, YB_CLI_SECTIONS_STORE, true,                                  \
      "move everything away from a node, so that it can be stopped without loss")              \
    X(engine, "engine", "", 0, YB_CLI_SECTIONS_SERVE, true,                                    \
      "run an inference engine without its arithmetic, on the real data path")                 \
    X(engine_config, "engine-config", "vllm|sglang|lmcache", 1, YB_CLI_SECTIONS_STORE, true,   \
      "print the flags, environment and files with which an engine uses a store")              \
    X(explain, "explain", "KEY", 1, YB_CLI_SECTIONS_STORE, true,                               \
      "say why a block is there, or why it is not")                                            \
    X(get, "get", "KEY [FILE|-]", 2, YB_CLI_SECTIONS_STORE, true,                              \
      "read a block from the store")                                                           \
    X(keyspaces, "keyspaces", "", 0, YB_CLI_SECTIONS_STORE, true,                              \
      "group the keys of a store by engine, model and rank, and say what never meets")         \
    X(ls, "ls", "[PREFIX]", 1, YB_CLI_SECTIONS_STORE, true,                                    \
      "list the keys of a tenant")                                                             \
    X(node, "node", "[check]", 1, YB_CLI_SECTIONS_NODE, true,                                  \
      "run nodes, which hold the blocks of a store; check: compare their books")               \
    X(nodes, "nodes", "", 0, YB_CLI_SECTIONS_STORE, true,                                      \
      "show who holds blocks, how full they are and how they are")                             \
    X(ping, "ping", "ADDRESS", 1, YB_CLI_SECTIONS_NET, true,                                   \
      "ask a process who it is, and measure how fast it answers")                              \
    X(put, "put", "KEY [FILE|-]", 2, YB_CLI_SECTIONS_STORE, true,                              \
      "write a block into the store")                                                          \
    X(rm, "rm", "[KEY...]", 4096, YB_CLI_SECTIONS_STORE, true,                                 \
      "remove blocks from the store")                                                          \
    X(secret, "secret", "new|derive", 1, YB_CLI_SECTIONS_COMMON | YB_CONFIG_IN(auth), true,    \
      "make a secret file, or derive the key of one role or tenant from it")                   \
    X(serve, "serve", "", 0, YB_CLI_SECTIONS_NODE | YB_CONFIG_IN(conductor), true,                                       \
      "run a whole store in one process: a directory and its nodes")                           \
    X(simulate, "simulate", "[TRACE]", 1, YB_CLI_SECTIONS_COMMON, true,                        \
      "say what a cluster would do: times, hits, links; and check that against papers")        \
    X(stat, "stat", "KEY", 1, YB_CLI_SECTIONS_STORE, true,                                     \
      "show one block: size, version, and each of its copies") \
    X(top, "top", "", 0, YB_CLI_SECTIONS_COMMON, true,                                         \
      "show what processes do, each second")                                                   \
    X(trace, "trace", "REQUEST|gen|show FILE|record LOG", 2, YB_CLI_SECTIONS_COMMON, true,     \
      "show a request's life in all processes; make or look at a trace of requests") \
    X(verify, "verify", "", 0, YB_CLI_SECTIONS_STORE, true,                                    \
      "try each link of a running cluster with bytes, and name the one that is broken")
/* clang-format on */

/* `argc` and `argv` are the words after the options. Returns the exit code. */
#define X(name, word, arguments, max, sections, json, help)      \
    extern const struct yb_cli_option yb_cli_##name##_options[]; \
    int yb_cli_##name(struct yb_cli *cli, int argc, char **argv);
YB_CLI_COMMAND_MAP(X)
#undef X

/* Return all commands; the last row has no name. Static. */
const struct yb_cli_command *yb_cli_commands(void);

/* Run the program. `argv` is permuted. Returns the exit code. */
int yb_cli_main(int argc, char **argv, char *const *environment, FILE *out, FILE *err);

/* Return what the command's own option was given: NULL when it was not, "" for a flag. The
 * option must be one of the command's. */
const char *yb_cli_option(const struct yb_cli *cli, const char *name);

/* Read a whole number from the command's own option into *number_out, which keeps its value
 * when the option is not given. Returns false after saying on `err` what is wrong. */
bool yb_cli_option_number(const struct yb_cli *cli, const char *name, uint64_t low, uint64_t high,
                          uint64_t *number_out);

#endif /* YB_CLI_CLI_H */
