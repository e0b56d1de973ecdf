/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the bytes on the wire are those of the golden files, and a decoder accepts
 * nothing that an encoder would not write.
 * Method: each example of the schemas is encoded from C values and compared with the
 * file, which the generator encoded on its own; then it is cut, lengthened and damaged
 * in every place, in memory of exactly its size so that a sanitizer sees any overrun.
 */
#include "../unit/unit.h"

#include <string.h>

#include "every_type_cases.h"
#include "golden_cases.h"
#include "golden_conductor_cases.h"
#include "golden_directory_cases.h"
#include "golden_node_cases.h"
#include "golden_transfer_cases.h"

#define BYTES_MAX 1024u

/* Read tests/wire/golden/<name>.hex; the folder is the program's first argument. */
static const char *folder;

static size_t
read_golden(const char *name, uint8_t *out)
{
    char path[512], line[256];
    size_t length = 0;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s.hex", folder, name);
    file = fopen(path, "r");
    if (file == NULL) {
        fail_msg("%s cannot be opened", path);
        return 0;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        unsigned byte;
        int step;

        for (const char *at = line; line[0] != '#' && sscanf(at, "%2x%n", &byte, &step) == 1;
             at += step) {
            assert_true(length < BYTES_MAX);
            out[length++] = (uint8_t)byte;
        }
    }
    fclose(file);
    return length;
}

/* Decode and encode again, from memory of exactly `length` bytes. Whatever is accepted must come
 * out unchanged. Returns whether it was accepted. */
static bool
recode(const struct golden_case *example, const uint8_t *bytes, size_t length)
{
    uint8_t *exact = malloc(length > 0 ? length : 1);
    uint8_t again[BYTES_MAX];
    struct golden_buffer out = {again, sizeof(again), 0};
    struct yb_wire_error error = {NULL, NULL, NULL, 0};
    enum yb_status status;

    assert_non_null(exact);
    memcpy(exact, bytes, length);
    status = example->recode(exact, length, &out, &error);
    if (status == YB_OK) {
        assert_int_equal(out.length, length);
        assert_memory_equal(again, bytes, length);
    } else {
        assert_int_equal(status, YB_PROTOCOL);
        assert_non_null(error.message);
        assert_non_null(error.field);
        assert_non_null(error.why);
    }
    free(exact);
    return status == YB_OK;
}

static void
try_case(const struct golden_case *example, uint64_t *random)
{
    uint8_t golden[BYTES_MAX + 1] = {0}, built[BYTES_MAX];
    struct golden_buffer out = {built, sizeof(built), 0};
    size_t length = read_golden(example->name, golden);

    assert_int_equal(example->build(&out), YB_OK);
    assert_int_equal(out.length, length);
    assert_memory_equal(built, golden, length);
    assert_true(length >= example->fixed_bytes);
    assert_true(recode(example, golden, length));

    /* No room for the last byte. */
    out.room = length - 1;
    assert_int_equal(example->build(&out), YB_TOO_SMALL);

    for (size_t cut = 0; cut < length; cut++) {
        assert_false(recode(example, golden, cut));
    }
    assert_false(recode(example, golden, length + 1));
    for (size_t at = 0; at < length; at++) {
        for (unsigned value = 0; value < 256; value++) {
            uint8_t before = golden[at];

            golden[at] = (uint8_t)value;
            recode(example, golden, length);
            golden[at] = before;
        }
    }
    for (unsigned round = 0; round < 5000; round++) {
        uint8_t damaged[BYTES_MAX];

        memcpy(damaged, golden, length);
        for (unsigned i = 0; i < 1 + unit_random(random) % 4; i++) {
            damaged[unit_random(random) % length] = (uint8_t)unit_random(random);
        }
        recode(example, damaged, 1 + unit_random(random) % length);
        recode(example, damaged, length);
    }
}

static void
test_golden__every_message_has_its_bytes_and_no_others(void **state)
{
    uint64_t random = unit_seed("golden damage");

    (void)state;
    for (size_t i = 0; i < sizeof(golden_cases) / sizeof(golden_cases[0]); i++) {
        try_case(&golden_cases[i], &random);
    }
    for (size_t i = 0; i < sizeof(golden_transfer_cases) / sizeof(golden_transfer_cases[0]); i++) {
        try_case(&golden_transfer_cases[i], &random);
    }
    for (size_t i = 0; i < sizeof(golden_directory_cases) / sizeof(golden_directory_cases[0]);
         i++) {
        try_case(&golden_directory_cases[i], &random);
    }
    for (size_t i = 0; i < sizeof(golden_node_cases) / sizeof(golden_node_cases[0]); i++) {
        try_case(&golden_node_cases[i], &random);
    }
    for (size_t i = 0; i < sizeof(golden_conductor_cases) / sizeof(golden_conductor_cases[0]);
         i++) {
        try_case(&golden_conductor_cases[i], &random);
    }
}

static void
test_golden__every_field_type_of_the_schema_language_works(void **state)
{
    uint64_t random = unit_seed("golden types");

    (void)state;
    for (size_t i = 0; i < sizeof(every_type_cases) / sizeof(every_type_cases[0]); i++) {
        try_case(&every_type_cases[i], &random);
    }
}

/* Change `count` bytes of the full sample and check that the decoder names this field. */
static void
blamed(size_t at, const char *bytes, size_t count, const char *field)
{
    uint8_t golden[BYTES_MAX];
    struct yb_wire_sample value = {.tiny = 77};
    struct yb_wire_error error = {NULL, NULL, NULL, 0};
    size_t length = read_golden("sample-full", golden);

    memcpy(golden + at, bytes, count);
    assert_int_equal(yb_wire_sample_decode(golden, length, &value, &error), YB_PROTOCOL);
    assert_string_equal(error.field, field);
    assert_int_equal(value.tiny, 77);
    assert_int_equal(yb_wire_sample_decode(golden, length, &value, NULL), YB_PROTOCOL);
}

static void
test_golden__a_refused_message_names_the_field(void **state)
{
    (void)state;
    blamed(YB_WIRE_SAMPLE_AT_TINY, "\1", 1, "tiny");
    blamed(YB_WIRE_SAMPLE_AT_TINY, "\12", 1, "tiny");
    blamed(YB_WIRE_SAMPLE_AT_MARKS, "\2", 1, "marks");
    blamed(YB_WIRE_SAMPLE_AT_OUTCOME, "\1\0\0\0", 4, "outcome");
    blamed(YB_WIRE_SAMPLE_AT_RESERVED, "\1", 1, "reserved");
    blamed(YB_WIRE_SAMPLE_AT_RESERVED2 + 5, "\1", 1, "reserved2");
    blamed(YB_WIRE_SAMPLE_AT_TITLE, "\13", 1, "title");
    blamed(YB_WIRE_SAMPLE_AT_PAYLOAD, "\145", 1, "payload");
    blamed(YB_WIRE_SAMPLE_AT_PAYLOAD, "\377\377\377\377", 4, "payload");
    blamed(YB_WIRE_SAMPLE_AT_PAYLOAD, "\144", 1, "payload");
    blamed(YB_WIRE_SAMPLE_AT_ITEMS, "\4", 1, "items");
    blamed(YB_WIRE_SAMPLE_AT_ITEMS, "\377\377\377\377", 4, "items");
    blamed(YB_WIRE_SAMPLE_AT_NOTE, "\2", 1, "length");
    /* In the tails: title at 72, payload at 81, items at 85 and 117, note at 149. */
    blamed(72, "\377", 1, "title");
    blamed(85 + YB_WIRE_SAMPLE_ITEM_AT_COLOR, "\2", 1, "color");
    blamed(117 + YB_WIRE_SAMPLE_ITEM_AT_SIZE, "\351\3", 2, "size");
    blamed(117 + YB_WIRE_SAMPLE_ITEM_AT_RESERVED, "\1", 1, "reserved");
    blamed(149, "\n", 1, "note");
}

static void
test_golden__a_list_can_be_encoded_from_structs_and_from_bytes(void **state)
{
    uint8_t golden[BYTES_MAX], again[BYTES_MAX];
    struct yb_wire_sample_item items[2];
    struct yb_wire_sample value;
    size_t length = read_golden("sample-full", golden), back = 0;

    (void)state;
    assert_int_equal(yb_wire_sample_decode(golden, length, &value, NULL), YB_OK);
    assert_int_equal(value.items.count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        yb_wire_sample_item_at(&value.items, i, &items[i]);
    }
    assert_int_equal(items[0].size, 1000);
    assert_int_equal(items[1].color, YB_WIRE_COLOR_RED);
    assert_true(value.below == INT64_MIN);
    assert_int_equal(value.little, INT32_MIN);
    value.items.wire = NULL;
    value.items.native = items;
    assert_int_equal(yb_wire_sample_encode(&value, again, sizeof(again), &back), YB_OK);
    assert_int_equal(back, length);
    assert_memory_equal(again, golden, length);
    items[1].size = 1001;
    assert_int_equal(yb_wire_sample_encode(&value, again, sizeof(again), &back), YB_INVALID);
    items[1].size = 0;
    items[0].color = 2;
    assert_int_equal(yb_wire_sample_encode(&value, again, sizeof(again), &back), YB_INVALID);
    items[0].color = YB_WIRE_COLOR_BLUE;
    value.items.count = 4;
    assert_int_equal(yb_wire_sample_encode(&value, again, sizeof(again), &back), YB_INVALID);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden__every_message_has_its_bytes_and_no_others),
        cmocka_unit_test(test_golden__every_field_type_of_the_schema_language_works),
        cmocka_unit_test(test_golden__a_refused_message_names_the_field),
        cmocka_unit_test(test_golden__a_list_can_be_encoded_from_structs_and_from_bytes),
    };

    if (argc != 2) {
        fprintf(stderr, "usage: %s tests/wire/golden\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
