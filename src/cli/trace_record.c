/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing trace record LOG`: what came to a conductor, as a trace in the published format: times,
 * lengths, and hashes of blocks.
 *
 * LOG is the conductor's log of decisions, which may still be growing. Blocks that are not whole,
 * or that nobody named, get numbers that occur nowhere else. How many tokens an answer had is what
 * its engine said, or, of one that has not ended, what was expected.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/simulate.h"
#include "conductor/wire/conductor_wire.h"

#define FIRST_ROOM 1024u
#define ID_MASK    (UINT64_MAX >> 1) /* JSON's numbers have a sign. */

struct request {
    uint64_t arrival_ns;
    uint64_t decision; /* 0: not decided, or not accepted. */
    uint32_t input_tokens;
    uint32_t output_tokens;
    struct yb_wire_conductor_block_list blocks; /* In the log. */
};

struct recording {
    uint32_t block_tokens;
    struct request *requests;
    size_t count;
    size_t room;
    bool memory; /* There was enough. */
};

/* ---- reading --------------------------------------------------------------------------------- */

/* Each takes the body of one record; false: it is none. */

static bool
on_options(struct recording *recording, const uint8_t *body, size_t length)
{
    struct yb_wire_conductor_options said;
    enum yb_status status = yb_wire_conductor_options_decode(body, length, &said, NULL);

    recording->block_tokens = status == YB_OK ? said.block_tokens : 0;
    return recording->block_tokens != 0;
}

static bool
on_schedule(struct recording *recording, uint64_t now_ns, const uint8_t *body, size_t length)
{
    struct yb_wire_conductor_asked asked;
    struct yb_wire_conductor_schedule question;
    struct request *request;

    if (yb_wire_conductor_asked_decode(body, length, &asked, NULL) != YB_OK ||
        yb_wire_conductor_schedule_decode(asked.question.bytes, asked.question.length, &question,
                                          NULL) != YB_OK) {
        return false;
    }
    if (recording->count == recording->room) {
        size_t room = recording->room == 0 ? FIRST_ROOM : 2 * recording->room;
        struct request *more = realloc(recording->requests, room * sizeof(*more));

        if (more == NULL) {
            recording->memory = false;
            return false;
        }
        recording->requests = more;
        recording->room = room;
    }
    request = &recording->requests[recording->count];
    *request = (struct request){
        .arrival_ns = now_ns,
        .input_tokens = question.input_tokens != 0 ? question.input_tokens
                                                   : asked.blocks.count * recording->block_tokens,
        .output_tokens = question.output_tokens,
        .blocks = asked.blocks,
    };
    recording->count += request->input_tokens > 0;
    return true;
}

static bool
on_decision(struct recording *recording, const uint8_t *body, size_t length)
{
    struct yb_wire_conductor_decision said;

    if (yb_wire_conductor_decision_decode(body, length, &said, NULL) != YB_OK) {
        return false;
    }
    if (recording->count > 0 && said.accepted) {
        recording->requests[recording->count - 1].decision = said.decision;
    }
    return true;
}

static bool
on_done(struct recording *recording, const uint8_t *body, size_t length)
{
    struct yb_wire_conductor_done said;

    if (yb_wire_conductor_done_decode(body, length, &said, NULL) != YB_OK) {
        return false;
    }
    for (size_t i = recording->count; i-- > 0 && said.output_tokens > 0;) {
        if (recording->requests[i].decision == said.decision) {
            recording->requests[i].output_tokens = said.output_tokens;
            break;
        }
    }
    return true;
}

static bool
on_record(struct recording *recording, const struct yb_wire_conductor_entry *entry,
          const uint8_t *body)
{
    switch (entry->kind) {
    case YB_WIRE_CONDUCTOR_RECORD_OPTIONS: return on_options(recording, body, entry->length);
    case YB_WIRE_CONDUCTOR_RECORD_SCHEDULE:
        return recording->block_tokens != 0 &&
               on_schedule(recording, entry->now_ns, body, entry->length);
    case YB_WIRE_CONDUCTOR_RECORD_DECISION: return on_decision(recording, body, entry->length);
    case YB_WIRE_CONDUCTOR_RECORD_DONE: return on_done(recording, body, entry->length);
    default: return recording->block_tokens != 0; /* The first says what the conductor is. */
    }
}

/* Read all whole records; returns how many bytes they are. */
static size_t
read_log(struct recording *recording, const uint8_t *bytes, size_t length)
{
    size_t at = 0;

    while (length - at >= YB_WIRE_CONDUCTOR_ENTRY_BYTES) {
        struct yb_wire_conductor_entry entry;
        const uint8_t *body = bytes + at + YB_WIRE_CONDUCTOR_ENTRY_BYTES;

        if (yb_wire_conductor_entry_decode(bytes + at, YB_WIRE_CONDUCTOR_ENTRY_BYTES, &entry,
                                           NULL) != YB_OK ||
            entry.length > length - at - YB_WIRE_CONDUCTOR_ENTRY_BYTES ||
            !on_record(recording, &entry, body)) {
            break;
        }
        at += YB_WIRE_CONDUCTOR_ENTRY_BYTES + entry.length;
    }
    return at;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool
write_trace(const struct recording *recording, FILE *out)
{
    uint64_t own = 0; /* Numbers of blocks that have no name. */

    for (size_t i = 0; i < recording->count; i++) {
        const struct request *request = &recording->requests[i];
        const uint64_t wanted = ((uint64_t)request->input_tokens + recording->block_tokens - 1) /
                                recording->block_tokens;

        fprintf(
            out,
            "{\"timestamp\": %" PRIu64
            ", \"input_length\": %u, \"output_length\": %u, \"hash_ids\": [",
            (uint64_t)((request->arrival_ns - recording->requests[0].arrival_ns) / YB_NS_PER_MS),
            request->input_tokens, request->output_tokens);
        for (uint64_t j = 0; j < wanted; j++) {
            struct yb_wire_conductor_block block = {.block = 0};

            if (j < request->blocks.count) {
                yb_wire_conductor_block_at(&request->blocks, (uint32_t)j, &block);
            } else {
                block.block = ++own;
            }
            fprintf(out, "%s%" PRIu64, j == 0 ? "" : ", ", (uint64_t)(block.block & ID_MASK));
        }
        fputs("]}\n", out);
    }
    return fflush(out) == 0 && !ferror(out);
}

int
yb_cli_trace_record(struct yb_cli *cli, const char *path)
{
    struct recording recording = {.memory = true};
    struct stat about = {.st_size = 0};
    void *bytes = MAP_FAILED;
    size_t used;
    bool written;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && fstat(fd, &about) == 0 && about.st_size > 0) {
        bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (bytes == MAP_FAILED) {
        fprintf(cli->err, "yuebing trace: %s: %s\n", path,
                errno != 0 ? strerror(errno) : "it is empty");
        return YB_CLI_EXIT_FAILED;
    }
    used = read_log(&recording, bytes, (size_t)about.st_size);
    written = recording.memory && used > 0 && write_trace(&recording, cli->out);
    if (!recording.memory) {
        fprintf(cli->err, "yuebing trace: %s\n", yb_status_text(YB_NO_MEMORY));
    } else if (used == 0) {
        fprintf(cli->err,
                "yuebing trace: %s: no log of decisions; `yuebing conductor "
                "--decision-log FILE` writes one\n",
                path);
    } else {
        fprintf(cli->err, "%zu requests, blocks of %u tokens: read it with --block-tokens %u\n",
                recording.count, recording.block_tokens, recording.block_tokens);
    }
    (void)munmap(bytes, (size_t)about.st_size);
    free(recording.requests);
    return written ? 0 : YB_CLI_EXIT_FAILED;
}
