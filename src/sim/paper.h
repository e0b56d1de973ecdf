/* SPDX-License-Identifier: Apache-2.0
 *
 * paper.h -- what published papers report, beside what our code gives.
 *
 * Each paper is one file, paper_NAME.c, with one function in YB_PAPER_MAP. It runs experiments and
 * adds rows. An experiment is a section of ONE configuration file for all rows (papers.ini, part of
 * the program; its hash is shown with the rows), so that no row has settings of its own that nobody
 * sees. What a row changes beside its section stands in the row's code and is what the figure
 * varies: a policy, a bandwidth, a capacity.
 *
 * Rows are of two kinds. A value row is ok if ours lies within a tolerance of what is published. An
 * ordering row says which of several runs is better, and is ok if ours are in that order and the
 * same runs without the mechanism in question are not: an order that comes out either way shows
 * nothing.
 *
 * Rows that stand on the surrogate of a trace that is not to be had say so.
 *
 * Threads   One; yb_papers_run() starts others, of which each runs papers by itself.
 * Memory    The table owns its rows, traces and configuration.
 * Failure   A trace that is not there makes its rows not ok, with that as their reason.
 */
#ifndef YB_SIM_PAPER_H
#define YB_SIM_PAPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/settings.h"
#include "sim/simulator.h"
#include "sim/trace.h"

#define YB_PAPER_TEXT_MAX    96u
#define YB_PAPER_ROWS_MAX    1024u
#define YB_PAPER_MESSAGE_MAX YB_SETTINGS_MESSAGE_MAX
#define YB_PAPER_CHANGES_MAX 8u

/* One line for each paper: its name, which is also its function, yb_paper_NAME. */
#define YB_PAPER_MAP(X) \
    X(mooncake)         \
    X(mooncake_cache)   \
    X(mooncake_load)    \
    X(bidaw)            \
    X(ecoserve)         \
    X(lmetric)          \
    X(rollart)          \
    X(seer)             \
    X(strata)           \
    X(wild)

struct yb_paper_row {
    const char *paper; /* Static, as all texts here but arrays. */
    const char *figure;
    const char *what; /* Which number of the figure. */
    double published;
    double ours;
    char order[YB_PAPER_TEXT_MAX];   /* Of an ordering row: what is published; else empty. */
    char seen[YB_PAPER_TEXT_MAX];    /* And what ours gives. */
    char without[YB_PAPER_TEXT_MAX]; /* And without the mechanism. */
    char tolerance[YB_PAPER_TEXT_MAX];
    char reason[YB_PAPER_TEXT_MAX]; /* Why it is not ok. */
    bool surrogate;
    bool ok;
};

struct yb_papers;

/* Create an empty table. `config` is the text of papers.ini or of another such file (NULL: that of
 * the program); `traces` the directory with the published traces. On OK *papers_out is the
 * caller's. Fails with INVALID (the message names the line and the setting) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_papers_create(const char *config, const char *traces,
                                           struct yb_papers **papers_out,
                                           char message[YB_PAPER_MESSAGE_MAX]);

/* Consume the table and set *papers to NULL; NULL is allowed inside. */
void yb_papers_destroy(struct yb_papers **papers);

/* Told as papers come to their end. */
typedef void yb_papers_progress_fn(void *context, uint32_t done, uint32_t all);

/* Run all papers, or that of one name, on as many threads as the process may have; rows are in the
 * order of YB_PAPER_MAP and the same however many there are. `progress` (NULL: none) is called in
 * the caller's thread. Fails with NOT_FOUND (no such paper), INVALID (an experiment is refused; the
 * message says why) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_papers_run(struct yb_papers *papers, const char *name,
                                        yb_papers_progress_fn *progress, void *context,
                                        char message[YB_PAPER_MESSAGE_MAX]);

/* Return a row; NULL past the end. Borrowed until destroy. */
const struct yb_paper_row *yb_papers_row(const struct yb_papers *papers, uint32_t index);

/* Return the hash of the configuration: XXH3 of its text. */
uint64_t yb_papers_hash(const struct yb_papers *papers);

const char *yb_paper_name(uint32_t index);

/* ---- for paper_*.c --------------------------------------------------------------------------- */

/* What a row changes of its section. */
struct yb_paper_change {
    const char *name;
    const char *value;
};

/* Return a trace of the directory by its name without ".jsonl", at `speed`; arrivals are spread
 * over their ticks. Borrowed. Fails with NOT_FOUND if it is not there. */
YB_CHECKED enum yb_status yb_paper_trace(struct yb_papers *papers, const char *name, double speed,
                                         const struct yb_trace **trace_out);

/* Run the experiment of a section with changes, which a row without a name ends (NULL: none). */
YB_CHECKED enum yb_status yb_paper_run(struct yb_papers *papers, const char *section,
                                       const struct yb_paper_change *changes,
                                       const struct yb_trace *trace, struct yb_result *result_out);

/* What the engines of a section are, without running it. */
struct yb_paper_engine {
    struct yb_sched_cost cost;
    double load_bytes_per_s; /* From the host to the devices. */
    double port_bytes_per_s; /* From the network. */
};
YB_CHECKED enum yb_status yb_paper_engine(struct yb_papers *papers, const char *section,
                                          struct yb_paper_engine *engine_out);

/* Read a number of a section that is not a setting, such as `speed`; `fallback` if it has none. */
double yb_paper_number(const struct yb_papers *papers, const char *section, const char *name,
                       double fallback);

/* A number that a section must have, and where it goes. */
struct yb_paper_number {
    const char *name;
    double *value_out;
};

/* Read numbers of a section, a row without a name ending them. Fails with INVALID if the section
 * lacks one. */
YB_CHECKED enum yb_status yb_paper_numbers(struct yb_papers *papers, const char *section,
                                           const struct yb_paper_number *numbers);

/* Add a row. */
void yb_paper_add(struct yb_papers *papers, const struct yb_paper_row *row);

/* Give the last row another reason, if it is not ok: what is known of why. */
void yb_paper_explain(struct yb_papers *papers, const char *reason);

/* Add a row of a value that may differ by a share of what is published. */
void yb_paper_add_ratio(struct yb_papers *papers, struct yb_paper_row row, double share);

/* The same with bounds: ours - published lies in below .. above. */
void yb_paper_add_within(struct yb_papers *papers, struct yb_paper_row row, double below,
                         double above);

/* Add a row that could not be run, with the reason. */
void yb_paper_add_missing(struct yb_papers *papers, struct yb_paper_row row, const char *reason);

/* Several figures of which each should be smaller than the one before it by at least a share. */
#define YB_PAPER_ORDER_MAX 8u
struct yb_paper_order {
    const char *names[YB_PAPER_ORDER_MAX];
    double with[YB_PAPER_ORDER_MAX];
    double without[YB_PAPER_ORDER_MAX]; /* The mechanism. */
    uint32_t count;
    double share;
};
void yb_paper_add_order(struct yb_papers *papers, struct yb_paper_row row,
                        const struct yb_paper_order *order);

/* Return what Mooncake calls the TBT of an answer: the mean of the longest tenth of its tokens'
 * gaps, of which the mean is `tpot_ns`. The first holds `turn_ns`, until decode began; the others
 * are so much alike that their mean stands for each. 0 for less than two tokens. */
double yb_paper_tbt_ns(double tpot_ns, double turn_ns, uint32_t output_tokens);

#define X(name) YB_CHECKED enum yb_status yb_paper_##name(struct yb_papers *papers);
YB_PAPER_MAP(X)
#undef X

#endif /* YB_SIM_PAPER_H */
