/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing trace record LOG`: what came to a conductor, as a trace in the published format: times,
 * lengths, and hashes of blocks.
 *
 * LOG is the conductor's log of decisions, which may still be growing. Blocks that are not whole,
 * or that nobody named, get numbers that occur nowhere else. How many tokens an answer had is what
 * its engine said, or, of one that has not ended, what was expected.
 *
 * With --follow it goes on for as long as the conductor writes: a request is written once it has
 * ended, or nothing was heard of it for as long as a conductor waits, and those after it then.
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
#include "cli/demo_process.h"
#include "cli/simulate.h"
#include "conductor/wire/conductor_wire.h"

#define FIRST_ROOM   1024u
#define LOOK_NS      (200 * YB_NS_PER_MS)
#define WAIT_NS      (600 * YB_NS_PER_S) /* For the end of a request, in the log's time. */
#define FOLLOW_BYTES (1ull << 36)        /* Of address space: a log that is followed grows. */
#define ID_MASK      (UINT64_MAX >> 1)   /* JSON's numbers have a sign. */

struct request {
    uint64_t arrival_ns;
    uint64_t decision; /* 0: not decided, or not accepted. */
    bool over;         /* No more will be heard of it. */
    uint32_t input_tokens;
    uint32_t output_tokens;
    struct yb_wire_conductor_block_list blocks; /* In the log. */
};

struct recording {
    uint32_t block_tokens;
    struct request *requests;
    size_t count;
    size_t room;
    size_t written; /* In all; those are not kept. */
    uint64_t first_ns;
    uint64_t newest_ns;
    uint64_t own; /* Numbers of blocks that have no name. */
    bool memory;  /* There was enough. */
    bool broken;  /* What came is no log. */
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
    if (recording->count > 0) { /* One without a decision was refused. */
        request = &recording->requests[recording->count - 1];
        request->over = request->over || request->decision == 0;
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
    if (recording->count > 0) {
        recording->requests[recording->count - 1].decision = said.accepted ? said.decision : 0;
        recording->requests[recording->count - 1].over = !said.accepted;
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
    for (size_t i = recording->count; i-- > 0 && said.decision != 0;) {
        struct request *request = &recording->requests[i];

        if (request->decision == said.decision) {
            request->output_tokens =
                said.output_tokens > 0 ? said.output_tokens : request->output_tokens;
            request->over = said.stage == YB_WIRE_CONDUCTOR_STAGE_ENDED;
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

/* Read all whole records from `at` on; returns where they end. */
static size_t
read_log(struct recording *recording, const uint8_t *bytes, size_t length, size_t at)
{
    while (length - at >= YB_WIRE_CONDUCTOR_ENTRY_BYTES && !recording->broken) {
        struct yb_wire_conductor_entry entry;
        const uint8_t *body = bytes + at + YB_WIRE_CONDUCTOR_ENTRY_BYTES;

        recording->broken = yb_wire_conductor_entry_decode(
                                bytes + at, YB_WIRE_CONDUCTOR_ENTRY_BYTES, &entry, NULL) != YB_OK;
        if (recording->broken || entry.length > length - at - YB_WIRE_CONDUCTOR_ENTRY_BYTES) {
            break;
        }
        recording->broken = !on_record(recording, &entry, body);
        if (!recording->broken) {
            recording->newest_ns = entry.now_ns;
            at += YB_WIRE_CONDUCTOR_ENTRY_BYTES + entry.length;
        }
    }
    return at;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void
write_request(struct recording *recording, const struct request *request, FILE *out)
{
    const uint64_t wanted =
        ((uint64_t)request->input_tokens + recording->block_tokens - 1) / recording->block_tokens;

    fprintf(out,
            "{\"timestamp\": %" PRIu64
            ", \"input_length\": %u, \"output_length\": %u, \"hash_ids\": [",
            (uint64_t)((request->arrival_ns - recording->first_ns) / YB_NS_PER_MS),
            request->input_tokens, request->output_tokens);
    for (uint64_t j = 0; j < wanted; j++) {
        struct yb_wire_conductor_block block = {.block = 0};

        if (j < request->blocks.count) {
            yb_wire_conductor_block_at(&request->blocks, (uint32_t)j, &block);
        } else {
            block.block = ++recording->own;
        }
        fprintf(out, "%s%" PRIu64, j == 0 ? "" : ", ", (uint64_t)(block.block & ID_MASK));
    }
    fputs("]}\n", out);
}

/* Write those of which no more will be heard, or all, and forget them. */
static bool
write_trace(struct recording *recording, FILE *out, bool all)
{
    size_t done = 0;

    while (done < recording->count &&
           (all || recording->requests[done].over ||
            recording->newest_ns - recording->requests[done].arrival_ns > WAIT_NS)) {
        if (recording->written + done == 0) {
            recording->first_ns = recording->requests[0].arrival_ns;
        }
        write_request(recording, &recording->requests[done++], out);
    }
    if (done > 0) {
        recording->written += done;
        recording->count -= done;
        memmove(recording->requests, recording->requests + done,
                recording->count * sizeof(*recording->requests));
    }
    return fflush(out) == 0 && !ferror(out);
}

/* ---- the log --------------------------------------------------------------------------------- */

/* Write what is in a log, or go on with what comes until it is taken away. Returns whether all was
 * written; *used_out is how far the log was one. */
static bool
record_log(struct recording *recording, int fd, const uint8_t *bytes, FILE *out, bool follow,
           size_t *used_out)
{
    struct stat about;
    size_t length = 0;
    bool written = true;

    *used_out = 0;
    while (written && recording->memory && fstat(fd, &about) == 0 &&
           (uint64_t)about.st_size >= length && (uint64_t)about.st_size <= FOLLOW_BYTES) {
        length = (size_t)about.st_size;
        *used_out = read_log(recording, bytes, length, *used_out);
        written = write_trace(recording, out, !follow);
        if (!follow || recording->broken) {
            break;
        }
        yb_demo_pause(LOOK_NS);
    }
    return written && *used_out > 0;
}

static void
say_end(struct yb_cli *cli, const char *path, const struct recording *recording, size_t used)
{
    if (!recording->memory) {
        fprintf(cli->err, "yuebing trace: %s\n", yb_status_text(YB_NO_MEMORY));
    } else if (used == 0) {
        fprintf(cli->err,
                "yuebing trace: %s: no log of decisions; `yuebing conductor "
                "--decision-log FILE` writes one\n",
                path);
    } else {
        fprintf(cli->err, "%zu requests, blocks of %u tokens: read it with --block-tokens %u\n",
                recording->written, recording->block_tokens, recording->block_tokens);
    }
}

int
yb_cli_trace_record(struct yb_cli *cli, const char *path)
{
    const bool follow = yb_cli_option(cli, "follow") != NULL;
    struct recording recording = {.memory = true};
    struct stat about = {.st_size = 0};
    size_t mapped = FOLLOW_BYTES;
    void *bytes = MAP_FAILED;
    size_t used;
    bool written;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && fstat(fd, &about) == 0 && (about.st_size > 0 || follow)) {
        mapped = follow ? FOLLOW_BYTES : (size_t)about.st_size;
        bytes = mmap(NULL, mapped, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    }
    if (bytes == MAP_FAILED) {
        fprintf(cli->err, "yuebing trace: %s: %s\n", path,
                errno != 0 ? strerror(errno) : "it is empty");
        if (fd >= 0) {
            (void)close(fd);
        }
        return YB_CLI_EXIT_FAILED;
    }
    written = record_log(&recording, fd, bytes, cli->out, follow, &used);
    say_end(cli, path, &recording, used);
    (void)close(fd);
    (void)munmap(bytes, mapped);
    free(recording.requests);
    return written && recording.memory ? 0 : YB_CLI_EXIT_FAILED;
}
