/* SPDX-License-Identifier: Apache-2.0 */
#include "compat/pattern.h"

#include <ctype.h>
#include <string.h>

struct writer {
    const char *from;
    char *out;
    size_t room;
    bool failed;
};

static void
put(struct writer *writer, const char *text, size_t length)
{
    if (length >= writer->room) {
        writer->failed = true;
        return;
    }
    memcpy(writer->out, text, length);
    writer->out += length;
    writer->room -= length;
    *writer->out = '\0';
}

static void
put_text(struct writer *writer, const char *text)
{
    put(writer, text, strlen(text));
}

/* The control character that a letter stands for behind a backslash; 0: none. */
static char
control_of(char letter)
{
    static const char letters[] = "fnrtv";
    static const char controls[] = "\f\n\r\t\v";
    const char *at = letter != '\0' ? strchr(letters, letter) : NULL;

    return at != NULL ? controls[at - letters] : '\0';
}

/* What stands behind a backslash, outside of brackets. */
static void
put_escape(struct writer *writer, char letter)
{
    const char control = control_of(letter);
    const char pair[] = {'\\', letter};

    if (letter == 'd') {
        put_text(writer, "[0-9]");
    } else if (letter == 'D') {
        put_text(writer, "[^0-9]");
    } else if (control != '\0') {
        put(writer, &control, 1);
    } else if (letter == '\0' || (isalpha((unsigned char)letter) && !strchr("wWsSbB", letter)) ||
               letter == '0') {
        writer->failed = true;
    } else if (strchr("<>`'", letter) != NULL) {
        put(writer, &letter, 1); /* With a backslash they are words of GNU's. */
    } else {
        put(writer, pair, sizeof(pair));
    }
}

/* The same in brackets, where a backslash is a character in our words. */
static void
put_member(struct writer *writer, char letter)
{
    const char control = control_of(letter);
    const char symbol[] = {'[', '.', letter, '.', ']'};

    if (letter == 'd') {
        put_text(writer, "0-9");
    } else if (letter == 'w') {
        put_text(writer, "[:alnum:]_");
    } else if (letter == 's') {
        put_text(writer, "[:space:]");
    } else if (control != '\0') {
        put(writer, &control, 1);
    } else if (letter == '\0' || isalnum((unsigned char)letter)) {
        writer->failed = true;
    } else {
        put(writer, symbol, sizeof(symbol));
    }
}

/* A class of POSIX's in brackets, "[:alpha:]" and its kin: both sides have them. */
static bool
put_class(struct writer *writer)
{
    const char kind = writer->from[1];
    const char *end = writer->from + 2;

    if (writer->from[0] != '[' || (kind != ':' && kind != '.' && kind != '=')) {
        return false;
    }
    while (*end != '\0' && !(end[0] == kind && end[1] == ']')) {
        end++;
    }
    if (*end == '\0') {
        return false;
    }
    put(writer, writer->from, (size_t)(end + 2 - writer->from));
    writer->from = end + 2;
    return true;
}

/* All of "[...]". */
static void
put_brackets(struct writer *writer)
{
    put(writer, writer->from++, 1);
    if (*writer->from == '^') {
        put(writer, writer->from++, 1);
    }
    writer->failed = writer->failed || *writer->from == ']';
    while (!writer->failed && *writer->from != ']' && *writer->from != '\0') {
        if (*writer->from == '\\') {
            put_member(writer, *++writer->from);
            writer->from++;
        } else if (!put_class(writer)) {
            put(writer, writer->from++, 1);
        }
    }
    writer->failed = writer->failed || *writer->from == '\0';
    if (!writer->failed) {
        put(writer, writer->from++, 1);
    }
}

bool
yb_compat_pattern(const char *known, char *out, size_t room)
{
    struct writer writer = {.from = known, .out = out, .room = room};
    bool quantified = false; /* What stands before says how often. */

    put_text(&writer, "");
    while (!writer.failed && *writer.from != '\0') {
        const char letter = *writer.from;
        const bool often = letter == '*' || letter == '+' || letter == '?' || letter == '}';

        if (letter == '\\') {
            put_escape(&writer, *++writer.from);
            writer.from++;
        } else if (letter == '[') {
            put_brackets(&writer);
        } else if (strncmp(writer.from, "(?", 2) == 0) {
            writer.failed = writer.from[2] != ':';
            put_text(&writer, "(");
            writer.from += 3;
        } else if (letter == '?' && quantified) {
            writer.from++;
        } else {
            put(&writer, writer.from++, 1);
        }
        quantified = often && !quantified;
    }
    return !writer.failed;
}
