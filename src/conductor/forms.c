/* SPDX-License-Identifier: Apache-2.0 */
#include "conductor/forms.h"

#include "conductor/wire/conductor_wire.h"
#include "yuebing/sched.h"

/* ---- words ----------------------------------------------------------------------------------- */

#define X(name, value, word, text) [value] = (word),
const char *const yb_form_tiers[] = {YB_SCHED_TIER_MAP(X) NULL};
const char *const yb_form_kinds[] = {YB_SCHED_KIND_MAP(X) NULL};
const char *const yb_form_reasons[] = {YB_SCHED_REASON_MAP(X) NULL};
const char *const yb_form_modes[] = {YB_SCHED_MODE_MAP(X) NULL};
const char *const yb_form_hotspots[] = {YB_SCHED_HOTSPOT_MAP(X) NULL};
#undef X
const char *const yb_form_classes[] = {"first_token", "throughput", "background", NULL};
const char *const yb_form_outcomes[] = {"open",        "in_time",        "late",   "already_there",
                                        "source_gone", "cancelled",      "failed", "expired",
                                        "joined",      "evicted_unused", NULL};
const char *const yb_form_roles[] = {"", "prefill", "decode", "both", NULL};
const char *const yb_form_carriers[] = {"engine", "conductor", NULL};
const char *const yb_form_why[] = {"request", "window", "heat", NULL};
static const char *const stages[] = {"", "first_token", "ended", "moved", NULL};
static const char *const local_tiers[] = {"device", "dram", "ssd", NULL};
static const char *const changes[] = {"came", "left", NULL};

/* ---- rows ------------------------------------------------------------------------------------ */

/* A field of the message that the rows around are of. */
#define FIELD(message, field)                                  \
    .at = offsetof(struct yb_wire_conductor_##message, field), \
    .bytes = sizeof(((struct yb_wire_conductor_##message *)NULL)->field)

#define NUMBER(message, field, most_, text_)                                            \
    {                                                                                   \
        .name = #field, .kind = YB_FORM_NUMBER, FIELD(message, field), .most = (most_), \
        .text = (text_)                                                                 \
    }
#define SIGNED(message, field, text_)                                                  \
    {                                                                                  \
        .name = #field, .kind = YB_FORM_SIGNED, FIELD(message, field), .text = (text_) \
    }
#define REAL(message, name_, field, scale_, text_)                                       \
    {                                                                                    \
        .name = (name_), .kind = YB_FORM_REAL, FIELD(message, field), .scale = (scale_), \
        .text = (text_)                                                                  \
    }
#define FLAG(message, field, text_)                                                  \
    {                                                                                \
        .name = #field, .kind = YB_FORM_FLAG, FIELD(message, field), .text = (text_) \
    }
#define WORD(message, name_, field, words_, needed_, text_)                                \
    {                                                                                      \
        .name = (name_), .kind = YB_FORM_WORD, .needed = (needed_), FIELD(message, field), \
        .words = (words_), .text = (text_)                                                 \
    }
#define TEXT(message, field, most_, needed_, text_)                                       \
    {                                                                                     \
        .name = #field, .kind = YB_FORM_TEXT, .needed = (needed_), FIELD(message, field), \
        .most = (most_), .text = (text_)                                                  \
    }
#define KEY(message, field, needed_, text_)                                              \
    {                                                                                    \
        .name = #field, .kind = YB_FORM_KEY, .needed = (needed_), FIELD(message, field), \
        .text = (text_)                                                                  \
    }
#define LIST(message, field, item, items_, most_, text_)                                      \
    {                                                                                         \
        .name = #field, .kind = YB_FORM_LIST,                                                 \
        .at = offsetof(struct yb_wire_conductor_##message, field),                            \
        .bytes = sizeof(struct yb_wire_conductor_##item), .most = (most_), .items = (items_), \
        .text = (text_)                                                                       \
    }

#define NAME_MAX YB_WIRE_CONDUCTOR_NAME_NAME_MAX

const struct yb_form yb_form_schedule[] = {
    {.name = "tokens",
     .kind = YB_FORM_TOKENS,
     FIELD(schedule, tokens),
     .most = YB_WIRE_CONDUCTOR_SCHEDULE_TOKENS_MAX / 4,
     .text = "the prompt's tokens; or"},
    {.name = "hashes",
     .kind = YB_FORM_KEYS,
     FIELD(schedule, hashes),
     .most = YB_WIRE_CONDUCTOR_SCHEDULE_HASHES_MAX,
     .text = "the names of its blocks, as of yb_key_chain()"},
    NUMBER(schedule, input_tokens, 67108864,
           "of the prompt; 0: as many as tokens, or as hashes cover"),
    NUMBER(schedule, output_tokens, 0, "of the answer, as predicted; 0: not known"),
    TEXT(schedule, model, NAME_MAX, false, "which; empty: the only one there is"),
    TEXT(schedule, tenant, NAME_MAX, false, "whose blocks; empty: default"),
    TEXT(schedule, salt, YB_WIRE_CONDUCTOR_SCHEDULE_SALT_MAX, false,
         "of the chain of block names; empty: the model"),
    WORD(schedule, "class", class, yb_form_classes, false, "of what is moved for it"),
    NUMBER(schedule, ttft_slo_us, 3600000000,
           "the first token is wanted within; 0: the conductor's"),
    NUMBER(schedule, tbt_slo_us, 3600000000, "and each further one; 0: the conductor's"),
    NUMBER(schedule, id, 0, "of the caller; 0: the conductor makes one"),
    NUMBER(schedule, session, 0, "requests that belong together; 0: none"),
    NUMBER(schedule, block_tokens, 65536,
           "tokens of a block; another number than the conductor's is refused"),
    TEXT(schedule, not_at, NAME_MAX, false,
         "an instance that must not be chosen, as it has just failed"),
    KEY(schedule, trace, false, "W3C trace id"),
    NUMBER(schedule, parent, 0, "the caller's span"),
    YB_FORM_END,
};

static const struct yb_form ended_form[] = {
    NUMBER(ended, id, 0, "which instruction"),
    WORD(ended, "outcome", outcome, yb_form_outcomes, true, "how it ended"),
    NUMBER(ended, took_us, 0, "from its beginning to its end"),
    WORD(ended, "source_tier", source_tier, yb_form_tiers, false, "where the bytes came from"),
    YB_FORM_END,
};

const struct yb_form yb_form_done[] = {
    NUMBER(done, decision, 0, "as the answer named it; with the stage `moved`: not needed"),
    WORD(done, "stage", stage, stages, true, "how far the request has come"),
    NUMBER(done, ttft_us, 0, "from arrival to the first token; 0: there was none"),
    NUMBER(done, total_us, 0, "from arrival to the last token"),
    NUMBER(done, output_tokens, 0, "how many there were"),
    FLAG(done, failed, "it was given up"),
    LIST(done, instructions, ended, ended_form, YB_WIRE_CONDUCTOR_DONE_INSTRUCTIONS_MAX,
         "those that have ended"),
    YB_FORM_END,
};

const struct yb_form yb_form_move[] = {
    {.name = "hashes",
     .kind = YB_FORM_KEYS,
     FIELD(move, hashes),
     .most = YB_WIRE_CONDUCTOR_MOVE_HASHES_MAX,
     .text = "the names of the blocks, as of yb_key_chain()"},
    WORD(move, "kind", kind, yb_form_kinds, true, "prefetch, replicate or migrate"),
    TEXT(move, to, NAME_MAX, true, "the node of the store whose memory they are to be in"),
    TEXT(move, tenant, NAME_MAX, false, "whose blocks; empty: default"),
    WORD(move, "class", class, yb_form_classes, false, "of the traffic"),
    NUMBER(move, parts, 255, "values in the store that a block has; 0: one"),
    NUMBER(move, deadline_us, 3600000000, "they are wanted within; 0: 10 s"),
    YB_FORM_END,
};

const struct yb_form yb_form_register[] = {
    TEXT(register, name, NAME_MAX, true, "unique in the cluster"),
    TEXT(register, model, NAME_MAX, true, "what it runs"),
    TEXT(register, address, NAME_MAX, false, "where requests for it go"),
    TEXT(register, node, NAME_MAX, false, "the store's node whose memory and disks it uses"),
    WORD(register, "roles", roles, yb_form_roles, true, "what it does"),
    NUMBER(register, incarnation, 0, "of this life; another one replaces the instance"),
    NUMBER(register, parts, 255,
           "values in the store that a block has: the last under its name, the others with their "
           "number behind it; 0: one"),
    TEXT(register, gpu, YB_WIRE_CONDUCTOR_REGISTER_GPU_MAX, false,
         "a device of the catalog, which has the costs; or:"),
    NUMBER(register, gpus, 4096, "devices of the instance"),
    NUMBER(register, prefill_base_ns, 0, "cost of a prefill"),
    REAL(register, "prefill_token_ns", prefill_token_ps, 1e3, "of each token that is computed"),
    REAL(register, "prefill_pair_ns", prefill_pair_fs, 1e6, "times n^2 - p^2"),
    NUMBER(register, step_base_ns, 0, "cost of a decode step"),
    NUMBER(register, step_sequence_ns, 0, "of each answer in it"),
    REAL(register, "step_token_ns", step_token_ps, 1e3, "of each token before these"),
    NUMBER(register, kv_bytes, 0x1000000000, "of one token, all layers"),
    NUMBER(register, kv_tokens_max, 0, "room on the devices; 0: no limit"),
    NUMBER(register, layers, 65536, "of the model"),
    NUMBER(register, pass_tokens, 0, "that one pass computes; 0: all"),
    NUMBER(register, in_rate, 0, "bytes per second from the network; 0: no such link"),
    NUMBER(register, out_rate, 0, "to the network"),
    NUMBER(register, load_rate, 0, "from memory to the devices"),
    NUMBER(register, ssd_rate, 0, "from the disks to memory"),
    NUMBER(register, object_rate, 0, "from the object store to memory"),
    NUMBER(register, net_latency_us, 0, "of the first byte"),
    NUMBER(register, load_latency_us, 0, "of the first byte"),
    NUMBER(register, ssd_latency_us, 0, "of the first byte"),
    NUMBER(register, object_latency_us, 0, "of the first byte"),
    NUMBER(register, rack, 1023, "a number"),
    NUMBER(register, group, 0, "instances that take turns together (time-sliced)"),
    YB_FORM_END,
};

const struct yb_form yb_form_unregister[] = {
    TEXT(name, name, NAME_MAX, true, "whose"),
    YB_FORM_END,
};

static const struct yb_form seen_form[] = {
    NUMBER(seen, conductor, 15, "its number"),
    NUMBER(seen, seen, 0, "its newest decision that is, or was, among the instance's requests"),
    NUMBER(seen, in_flight, 0, "its requests here that have not ended"),
    YB_FORM_END,
};

static const struct yb_form cached_form[] = {
    KEY(cached, key, true, "the block's name, as of yb_key_chain()"),
    WORD(cached, "tier", tier, local_tiers, false, "where it lies"),
    WORD(cached, "change", gone, changes, false, "whether it came or left"),
    YB_FORM_END,
};

const struct yb_form yb_form_report[] = {
    TEXT(report, name, NAME_MAX, true, "whose"),
    NUMBER(report, incarnation, 0, "as it registered"),
    {.name = "sequence",
     .kind = YB_FORM_NUMBER,
     .needed = true,
     FIELD(report, sequence),
     .text = "grows by each report"},
    NUMBER(report, prefill_left_us, 0, "until what is queued or running has been prefilled"),
    NUMBER(report, prefill_tokens, 0, "to compute for that"),
    NUMBER(report, queued, 0, "requests before their first token"),
    NUMBER(report, running, 0, "requests that are decoded"),
    NUMBER(report, context_tokens, 0, "of those, in all"),
    NUMBER(report, kv_tokens_used, 0, "on the devices, in use by requests"),
    NUMBER(report, in_backlog, 0, "bytes that wait on the link"),
    NUMBER(report, out_backlog, 0, "bytes that wait on the link"),
    NUMBER(report, load_backlog, 0, "bytes that wait on the link"),
    NUMBER(report, ssd_backlog, 0, "bytes that wait on the link"),
    NUMBER(report, object_backlog, 0, "bytes that wait on the link"),
    NUMBER(report, in_rate, 0, "bytes per second, as measured; 0: as before"),
    NUMBER(report, out_rate, 0, "bytes per second, as measured; 0: as before"),
    NUMBER(report, load_rate, 0, "bytes per second, as measured; 0: as before"),
    NUMBER(report, ssd_rate, 0, "bytes per second, as measured; 0: as before"),
    NUMBER(report, object_rate, 0, "bytes per second, as measured; 0: as before"),
    FLAG(report, prefilling, "time-sliced: it is in its prefill window"),
    NUMBER(report, phase_age_us, 0, "time-sliced: since it changed between prefill and decode"),
    SIGNED(report, saved_us,
           "time-sliced: how far its answers are ahead of their pace, on the average; below 0: "
           "behind it; 0: not known"),
    LIST(report, seen, seen, seen_form, YB_WIRE_CONDUCTOR_REPORT_SEEN_MAX, "by conductor"),
    LIST(report, blocks, cached, cached_form, YB_WIRE_CONDUCTOR_REPORT_BLOCKS_MAX,
         "what changed in its own cache since the last report"),
    TEXT(report, tenant, NAME_MAX, false, "whose blocks these are; empty: default"),
    YB_FORM_END,
};
