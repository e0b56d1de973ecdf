/* SPDX-License-Identifier: Apache-2.0
 *
 * store_judge.h -- whether a store on the simulated network keeps its promises (RULES H).
 *
 * While time passes, after every step of it:
 *
 *   H1  A node serves only inside its lease, and never in a life that the directory takes for dead.
 *   H2  What is served under one grant of one key has the same bytes everywhere.
 *   H4  What had its effect before an acknowledged removal, flush or replacement was called is
 *       served by no node any more.
 *   H6  What a node says to have below its memory is there on the medium, byte for byte.
 *   H7  yb_node_check() holds.
 *   A16 What begins a value in parts begins no other one; its manifest stands for it in H4.
 *   An operation ends by its deadline, and the moment that a reset takes.
 *
 * In the end the history of every key is judged (store_history.h), and that nothing is left.
 */
#ifndef YB_TESTS_STORE_JUDGE_H
#define YB_TESTS_STORE_JUDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_judge;
struct store_op;
struct store_world;
struct yb_node;

struct store_judge *store_judge_create(struct store_world *world);
void store_judge_destroy(struct store_judge **judge);

/* An operation was submitted; it has ended (every item has its status). */
void store_judge_began(struct store_judge *judge, const struct store_op *op);
void store_judge_ended(struct store_judge *judge, const struct store_op *op);

/* What must hold at any time. */
void store_judge_check(struct store_judge *judge);

/* From now on values may get lost: a node died, was suspected or had to evict. */
void store_judge_loss(struct store_judge *judge);

/* From now on removals that were not acknowledged may be undone: a directory died. */
void store_judge_returns(struct store_judge *judge);

/* Judge the histories; returns how many were too hard. */
uint32_t store_judge_histories(struct store_judge *judge);

/* Whether nothing is under way or held anywhere: to be asked some time after everything ended. */
bool store_judge_quiet(struct store_judge *judge, char *why_out, size_t why_bytes);

/* The same of one node, on which as many clients may wait for news. */
bool store_node_quiet(struct yb_node *node, uint32_t watches, char *why_out, size_t why_bytes);

#endif /* YB_TESTS_STORE_JUDGE_H */
