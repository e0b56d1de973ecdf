/* SPDX-License-Identifier: Apache-2.0
 *
 * demo_process.h -- the processes that `yuebing demo` starts: servers, and the two programs that
 * share blocks.
 *
 * Threads   The calling one; the programs are processes of their own, forked while there is only
 *           one thread.
 */
#ifndef YB_CLI_DEMO_PROCESS_H
#define YB_CLI_DEMO_PROCESS_H

#include <sys/types.h>

#include "cli/store.h"

#define YB_DEMO_BLOCKS     96u
#define YB_DEMO_SIZES      3u
#define YB_DEMO_LINE_BYTES 2048u
#define YB_DEMO_FOLDER     48u

/* A process that serves. */
struct yb_demo_server {
    pid_t pid;  /* 0: none. */
    int out_fd; /* What it says; its end means that it has ended. */
};

/* What a program that used the store has found. It comes through a pipe, as it is. */
struct yb_demo_result {
    uint64_t blocks;
    uint64_t there;   /* Of which put, or found and right. */
    uint64_t missing; /* Of which NOT_FOUND ... */
    uint64_t failed;  /* ... or anything else. */
    uint64_t bytes;   /* Put, or compared and right. */
    uint64_t wrong;   /* Blocks whose bytes were not those that were put. */
    uint64_t took_ns;
    char error[160]; /* The first failure. */
};

/* Of block `index`: even ones have two copies. */
bool yb_demo_replicated(uint32_t index);
void yb_demo_key(uint32_t index, char key_out[32]);

/* Start `yuebing WORDS...`; the list ends with NULL, and the first word is the command. It dies
 * with us. False: it could not be started. */
bool yb_demo_start(const char *const *words, struct yb_demo_server *server_out);

/* Read its line that it serves. False: it ended, or did not say so in time. */
bool yb_demo_ready(const struct yb_demo_server *server, char line_out[YB_DEMO_LINE_BYTES]);

/* Wait for its end. True: exit code 0, in time. */
bool yb_demo_reap(struct yb_demo_server *server);

/* Make a folder of this process's own, whose name has its number: that of two demos differs. False:
 * errno says why. */
bool yb_demo_folder_make(char path_out[YB_DEMO_FOLDER]);

/* Let a span of time pass. */
void yb_demo_pause(uint64_t span_ns);

/* Be killed, by -9. */
void yb_demo_kill(struct yb_demo_server *server);

/* Have another process, a copy of this one, do some work; what it writes at `result_out` there, of
 * at most PIPE_BUF bytes, comes here. False: it did not come back, or `work` said so. */
bool yb_demo_elsewhere(bool (*work)(const void *context, void *result_out), const void *context,
                       void *result_out, size_t result_bytes);

/* Have another process put all blocks (or read and compare them). False: it did not come back. */
bool yb_demo_program(const struct yb_client_options *options, bool writer,
                     struct yb_demo_result *result_out);

#endif /* YB_CLI_DEMO_PROCESS_H */
