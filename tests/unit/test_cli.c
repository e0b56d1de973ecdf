/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the program's front door: commands, help, refusals, tables, JSON,
 * progress, and that the documents mention every row.
 * Method: yb_cli_main with streams in memory; a clock that the test moves.
 */
#include "unit.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/docs.h"
#include "cli/output.h"

struct run {
    int code;
    char *out;
    char *err;
};

/* Run `yuebing` with the words of `line`, which are separated by single blanks. */
static struct run
run_program(const char *line, char *const *environment)
{
    struct run run = {0};
    size_t out_size = 0;
    size_t err_size = 0;
    FILE *out = open_memstream(&run.out, &out_size);
    FILE *err = open_memstream(&run.err, &err_size);
    char words[256];
    char program[] = "yuebing";
    char *argv[16] = {program};
    char *rest = words;
    int argc = 1;

    snprintf(words, sizeof(words), "%s", line);
    while (rest != NULL && rest[0] != '\0' && argc < 15) {
        argv[argc++] = strsep(&rest, " ");
    }
    run.code = yb_cli_main(argc, argv, environment, out, err);
    fclose(out);
    fclose(err);
    return run;
}

static void
expect_run(const char *line, int code, const char *in_out, const char *in_err)
{
    struct run run = run_program(line, NULL);

    if (run.code != code || strstr(run.out, in_out) == NULL || strstr(run.err, in_err) == NULL) {
        fail_msg("\"%s\": %d\n%s\n%s", line, run.code, run.out, run.err);
    }
    free(run.out);
    free(run.err);
}

static void
test_cli__help_and_version_are_there_and_unknown_commands_refuse(void **state)
{
    (void)state;
    expect_run("", 2, "", "Usage: yuebing COMMAND");
    expect_run("--version", 0, "yuebing 0.", "");
    expect_run("--help", 0, "doctor", "");
    expect_run("help", 0, "doctor", "");
    expect_run("help doctor", 0, "--net-congestion VALUE", "");
    expect_run("doctor --help", 0, "--net-congestion VALUE", "");
    expect_run("help dcotor", 2, "", "did you mean doctor?");
    expect_run("dcotor", 2, "", "unknown command \"dcotor\"; did you mean doctor?");
    expect_run("something", 2, "", "unknown command \"something\"; `yuebing help`");
    expect_run("--json", 2, "", "\"--json\" before the command");
    expect_run("config extra", 2, "", "unexpected \"extra\"");
    expect_run("config --net-workers=0", 2, "", "\"0\"; allowed: 1 .. 256");
    expect_run("config --nonsense", 2, "", "\"--nonsense\"");
    expect_run("config --man 9", 2, "", "--man cannot be \"9\"");
    expect_run("config --json --markdown", 2, "", "give one of");
}

static void
test_cli__config_prints_every_row_with_its_source(void **state)
{
    char variable[] = "YUEBING_NET_DRAIN_MS=7s";
    char *environment[] = {variable, NULL};
    struct run run = run_program("config --json --workers 3", environment);
    json_t *rows;
    json_t *row;
    size_t i;

    (void)state;
    assert_int_equal(run.code, 0);
    rows = json_loads(run.out, 0, NULL);
    assert_non_null(rows);
    assert_int_equal(json_array_size(rows), YB_CONFIG_ROWS);
    json_array_foreach(rows, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        const char *value = json_string_value(json_object_get(row, "value"));
        const char *source = json_string_value(json_object_get(row, "source"));

        if (strcmp(name, "net.workers") == 0) {
            assert_string_equal(value, "3");
            assert_string_equal(source, "--workers");
        } else if (strcmp(name, "net.drain_ms") == 0) {
            assert_string_equal(value, "7000");
            assert_string_equal(source, "YUEBING_NET_DRAIN_MS");
        } else {
            assert_string_equal(source, "default");
        }
    }
    json_decref(rows);
    free(run.out);
    free(run.err);
    expect_run("config --workers 3", 0, "net.workers               3 ", "");
}

static void
test_cli__doctor_prints_json_and_a_table(void **state)
{
    struct run run = run_program("doctor --json", NULL);
    json_t *rows = json_loads(run.out, 0, NULL);

    (void)state;
    assert_int_equal(run.code, 0);
    assert_non_null(rows);
    assert_true(json_array_size(rows) > 15);
    json_decref(rows);
    free(run.out);
    free(run.err);
    expect_run("doctor", 0, "congestion control", "");
}

static void
expect_document(void (*print)(FILE *out), bool troff)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    print(out);
    fclose(out);
    for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
        char name[YB_CONFIG_NAME_MAX];

        if (troff) {
            snprintf(name, sizeof(name), ".B %s\n", yb_config_rows()[i].name);
        } else {
            yb_config_option_name(&yb_config_rows()[i], false, name);
        }
        /* fish writes `-l name`. */
        assert_true(strstr(text, name) != NULL || strstr(text, name + 2) != NULL);
    }
    free(text);
}

static void
test_cli__every_document_mentions_every_row_and_command(void **state)
{
    static void (*const documents[])(FILE *) = {yb_docs_man_program, yb_docs_completion_bash,
                                                yb_docs_completion_zsh, yb_docs_completion_fish};

    (void)state;
    expect_document(yb_docs_markdown, false);
    expect_document(yb_docs_man_config, true);
    expect_document(yb_docs_completion_bash, false);
    expect_document(yb_docs_completion_zsh, false);
    expect_document(yb_docs_completion_fish, false);
    for (size_t i = 0; i < sizeof(documents) / sizeof(documents[0]); i++) {
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);

        documents[i](out);
        fclose(out);
        for (const struct yb_cli_command *command = yb_cli_commands(); command->name != NULL;
             command++) {
            assert_non_null(strstr(text, command->name));
        }
        free(text);
    }
}

static void
test_cli__no_command_option_hides_a_parameter(void **state)
{
    (void)state;
    for (const struct yb_cli_command *command = yb_cli_commands(); command->name != NULL;
         command++) {
        for (const struct yb_cli_option *option = command->options; option->name != NULL;
             option++) {
            assert_string_not_equal(option->name, "json");
            assert_string_not_equal(option->name, "help");
            for (unsigned i = 0; i < 2 * YB_CONFIG_ROWS; i++) {
                const struct yb_config_row *row = &yb_config_rows()[i / 2];
                char name[YB_CONFIG_NAME_MAX];

                if ((command->sections & 1u << row->section) != 0 &&
                    (i % 2 == 0 || row->alias[0] != '\0')) { /* Others are not options of it. */
                    yb_config_option_name(row, i % 2 != 0, name);
                    assert_string_not_equal(option->name, name + 2);
                }
            }
        }
    }
}

/* 320 KiB a token, 8192 tokens in 0.289 s: 9.3 GB/s, more than the 3.1 of the network. */
static void
test_cli__advise_answers_with_what_costs_say(void **state)
{
    struct run run = run_program("advise --gpu 8xH800 --net 25G --pool 0 --json", NULL);
    json_t *answer = json_loads(run.out, 0, NULL);
    json_t *row;
    size_t i;

    (void)state;
    assert_int_equal(run.code, 0);
    assert_non_null(answer);
    assert_int_equal(json_integer_value(json_object_get(answer, "kv_bytes_per_token")), 327680);
    row = json_array_get(json_object_get(answer, "prefixes"), 1);
    assert_int_equal(json_integer_value(json_object_get(row, "tokens")), 8192);
    assert_true(fabs(json_real_value(json_object_get(row, "break_even_bytes_per_s")) - 9.29e9) <
                1e7);
    assert_true(fabs(json_real_value(json_object_get(row, "net_s")) - 0.859) < 0.001);
    assert_int_equal(json_integer_value(json_object_get(answer, "bus_threshold_tokens")), 1);
    assert_int_equal(json_array_size(json_object_get(answer, "modes")), 3);
    assert_true(json_real_value(json_object_get(json_object_get(answer, "pool"), "hit")) == 0);
    json_array_foreach(json_object_get(answer, "pools"), i, row)
    {
        assert_true(json_real_value(json_object_get(row, "of_ideal")) >=
                    json_real_value(json_object_get(row, "wanted")));
    }
    json_decref(answer);
    free(run.out);
    free(run.err);
}

static void
test_cli__advise_refuses_what_it_does_not_know(void **state)
{
    (void)state;
    expect_run("advise --model none-such", 2, "", "none-such");
    expect_run("advise --net fast", 2, "", "net cannot be \"fast\"");
    expect_run("advise --instances 0", 2, "",
               "--instances, --ttft-slo and --tpot-slo-ms cannot be 0");
    expect_run("advise --like nothing", 2, "", "allowed: conversation");
    expect_run("advise --eviction none-such", 2, "",
               "eviction cannot be \"none-such\"; allowed: lru");
    expect_run("advise --trace /none-such", 2, "", "/none-such");
}

static void
test_output__columns_line_up_and_escapes_are_for_terminals(void **state)
{
    static const char *const columns[] = {"A", "B"};
    static const char *const first[] = {"月饼", "1"};
    static const char *const second[] = {"longer", "2"};
    struct yb_output_table *table = NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    assert_int_equal(yb_output_table_create(columns, 2, &table), YB_OK);
    assert_int_equal(yb_output_table_add(table, first), YB_OK);
    assert_int_equal(yb_output_table_add(table, second), YB_OK);
    yb_output_table_print(table, out, false);
    fflush(out);
    assert_string_equal(text, "A       B\n月饼      1\nlonger  2\n");
    yb_output_table_print(table, out, true);
    fclose(out);
    assert_non_null(strstr(text, "\033[1mA       B\033[0m\n"));
    free(text);
    yb_output_table_destroy(&table);
    assert_null(table);
}

struct moved_clock {
    struct yb_clock clock;
    uint64_t now_ns;
};

static uint64_t
moved_now(const struct yb_clock *clock)
{
    /* The clock is the first member. */
    return ((const struct moved_clock *)(const void *)clock)->now_ns;
}

static void
test_output__progress_is_silent_at_first_and_off_terminals(void **state)
{
    struct moved_clock clock = {.clock = {.monotonic_ns = moved_now}, .now_ns = 5};
    struct yb_output_progress progress;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    yb_output_progress_begin(&progress, out, true, &clock.clock, "copying", 10);
    clock.now_ns += 2 * YB_NS_PER_S - 1;
    yb_output_progress_update(&progress, 1);
    fflush(out);
    assert_int_equal(size, 0);
    clock.now_ns += 1;
    yb_output_progress_update(&progress, 5);
    yb_output_progress_update(&progress, 6);
    fflush(out);
    assert_string_equal(text, "\r\033[Kcopying: 50 % (5 of 10)");
    yb_output_progress_end(&progress);
    fflush(out);
    assert_string_equal(text, "\r\033[Kcopying: 50 % (5 of 10)\r\033[K");
    rewind(out);
    yb_output_progress_begin(&progress, out, false, &clock.clock, "copying", 10);
    clock.now_ns += 100 * YB_NS_PER_S;
    yb_output_progress_update(&progress, 5);
    yb_output_progress_end(&progress);
    fflush(out);
    assert_int_equal(size, 0);
    fclose(out);
    free(text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cli__help_and_version_are_there_and_unknown_commands_refuse),
        cmocka_unit_test(test_cli__config_prints_every_row_with_its_source),
        cmocka_unit_test(test_cli__doctor_prints_json_and_a_table),
        cmocka_unit_test(test_cli__every_document_mentions_every_row_and_command),
        cmocka_unit_test(test_cli__no_command_option_hides_a_parameter),
        cmocka_unit_test(test_cli__advise_answers_with_what_costs_say),
        cmocka_unit_test(test_cli__advise_refuses_what_it_does_not_know),
        cmocka_unit_test(test_output__columns_line_up_and_escapes_are_for_terminals),
        cmocka_unit_test(test_output__progress_is_silent_at_first_and_off_terminals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
