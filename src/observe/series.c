/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/series.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX     "yuebing_"
#define LABELS_MAX 512u /* Longer names of series are nobody's of ours. */
#define VALUE_MAX  64u
#define EXACT_MAX  9e15 /* Whole numbers below are exact as a double. */

/* Whether a series is drawn bucket by bucket. */
static bool
is_shown(const char *name, size_t length)
{
    static const char *const histograms[] = {"ttft", "decision_to_arrival"};
    bool shown = memmem(name, length, "_bucket{", sizeof("_bucket{") - 1) == NULL;

    for (size_t i = 0; !shown && i < sizeof(histograms) / sizeof(histograms[0]); i++) {
        shown = memmem(name, length, histograms[i], strlen(histograms[i])) != NULL;
    }
    return shown;
}

static bool
is_name(const char *name, size_t length)
{
    bool whole = length > 0 && length < LABELS_MAX;

    for (size_t i = 0; whole && i < length; i++) {
        whole = name[i] >= 0x20 && name[i] < 0x7f;
    }
    return whole;
}

/* One line: the name, with labels that may have spaces in them, a space, the value. A time stamp,
 * which we write never, makes a line no series. */
static void
read_line(const char *line, size_t length, json_t *series_out)
{
    const char *space = memrchr(line, ' ', length);
    size_t name = space == NULL ? 0 : (size_t)(space - line);
    size_t digits = space == NULL ? 0 : length - name - 1;
    char key[LABELS_MAX];
    char text[VALUE_MAX + 1];
    char *end;
    double value;

    if (!is_name(line, name) || digits == 0 || digits > VALUE_MAX || !is_shown(line, name) ||
        (memchr(line, ' ', name) != NULL && line[name - 1] != '}')) {
        return;
    }
    memcpy(text, space + 1, digits);
    text[digits] = '\0';
    value = strtod(text, &end);
    if (*end != '\0' || !isfinite(value) || value == 0) {
        return;
    }
    if (name > sizeof(PREFIX) - 1 && memcmp(line, PREFIX, sizeof(PREFIX) - 1) == 0) {
        line += sizeof(PREFIX) - 1;
        name -= sizeof(PREFIX) - 1;
    }
    memcpy(key, line, name);
    key[name] = '\0';
    json_object_set_new(series_out, key,
                        value == floor(value) && fabs(value) < EXACT_MAX
                            ? json_integer((json_int_t)value)
                            : json_real(value));
}

void
yb_series_read(const char *text, size_t length, uint32_t count_max, json_t *series_out)
{
    const char *end = text + length;

    while (text < end && json_object_size(series_out) < count_max) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t line = (size_t)((stop == NULL ? end : stop) - text);

        if (line > 0 && text[0] != '#') {
            read_line(text, line, series_out);
        }
        text += line + 1;
    }
}
