/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/object/s3_xml.h"

#include <dlfcn.h>
#include <errno.h>
#include <expat.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX  16u
#define TEXT_BYTES YB_OBJECT_TOKEN_BYTES

/* The library, found at run time: who keeps nothing in S3 needs none. */
struct expat {
    void *library;
    XML_Parser (*create)(const XML_Char *encoding);
    void (*free)(XML_Parser parser);
    void (*set_user)(XML_Parser parser, void *user);
    void (*set_element)(XML_Parser parser, XML_StartElementHandler start,
                        XML_EndElementHandler end);
    void (*set_data)(XML_Parser parser, XML_CharacterDataHandler data);
    void (*set_doctype)(XML_Parser parser, XML_StartDoctypeDeclHandler start);
    enum XML_Status (*parse)(XML_Parser parser, const char *text, int length, int last);
    enum XML_Status (*stop)(XML_Parser parser, XML_Bool resumable);
};

static bool
load(struct expat *expat)
{
    const struct {
        const char *name;
        void *to;
    } symbols[] = {
        {"XML_ParserCreate", &expat->create},
        {"XML_ParserFree", &expat->free},
        {"XML_SetUserData", &expat->set_user},
        {"XML_SetElementHandler", &expat->set_element},
        {"XML_SetCharacterDataHandler", &expat->set_data},
        {"XML_SetStartDoctypeDeclHandler", &expat->set_doctype},
        {"XML_Parse", &expat->parse},
        {"XML_StopParser", &expat->stop},
    };

    expat->library = dlopen("libexpat.so.1", RTLD_NOW | RTLD_LOCAL);
    if (expat->library == NULL) {
        return false;
    }
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(expat->library, symbols[i].name);

        if (symbol == NULL) {
            (void)dlclose(expat->library);
            return false;
        }
        memcpy(symbols[i].to, &symbol, sizeof(symbol));
    }
    return true;
}

bool
yb_object_xml_ready(void)
{
    struct expat expat;

    if (!load(&expat)) {
        return false;
    }
    (void)dlclose(expat.library);
    return true;
}

/* One run through a text: after each element, `on_text` is told what stood in it. */
struct reading {
    struct expat expat;
    XML_Parser parser;
    uint32_t depth;
    bool bad;
    bool root; /* The root was the one that is wanted, or any. */
    const char *wanted_root;
    void (*on_text)(struct reading *reading, const char *element, const char *text);
    char text[TEXT_BYTES];
    size_t used;
    bool cut; /* The text did not fit. */

    /* A listing. */
    const char *prefix;
    struct yb_object_entry *entries;
    uint32_t entries_max;
    uint32_t count;
    struct yb_object_entry entry;
    bool has_key, has_size, truncated;
    char *token;

    /* A text. */
    const char *element;
    char *value;
    size_t value_size;
    bool found;
};

static void
on_start(void *context, const char *name, const char **attributes)
{
    struct reading *reading = context;

    (void)attributes;
    if (reading->depth == 0) {
        reading->root = reading->wanted_root == NULL || strcmp(name, reading->wanted_root) == 0;
    }
    if (++reading->depth > DEPTH_MAX || !reading->root) {
        reading->bad = true;
        (void)reading->expat.stop(reading->parser, XML_FALSE);
        return;
    }
    if (strcmp(name, "Contents") == 0) {
        reading->has_key = reading->has_size = false;
    }
    reading->used = 0;
    reading->cut = false;
}

static void
on_data(void *context, const char *data, int length)
{
    struct reading *reading = context;
    size_t more = (size_t)length;

    if (reading->used + more >= TEXT_BYTES) {
        reading->cut = true;
        return;
    }
    memcpy(reading->text + reading->used, data, more);
    reading->used += more;
}

static void
on_end(void *context, const char *name)
{
    struct reading *reading = context;

    reading->depth--;
    reading->text[reading->cut ? 0 : reading->used] = '\0';
    reading->on_text(reading, name, reading->text);
    reading->used = 0;
}

/* A text that defines entities is made to blow up, or to look elsewhere; S3 writes no such text. */
static void
on_doctype(void *context, const XML_Char *name, const XML_Char *system_id,
           const XML_Char *public_id, int internal)
{
    struct reading *reading = context;

    (void)name;
    (void)system_id;
    (void)public_id;
    (void)internal;
    reading->bad = true;
    (void)reading->expat.stop(reading->parser, XML_FALSE);
}

static bool
run(struct reading *reading, const char *text, size_t length)
{
    struct expat *expat = &reading->expat;
    bool whole = false;

    if (length > INT32_MAX || !load(expat)) {
        return false;
    }
    reading->parser = expat->create(NULL);
    if (reading->parser != NULL) {
        expat->set_user(reading->parser, reading);
        expat->set_element(reading->parser, on_start, on_end);
        expat->set_data(reading->parser, on_data);
        expat->set_doctype(reading->parser, on_doctype);
        whole = expat->parse(reading->parser, text, (int)length, XML_TRUE) == XML_STATUS_OK;
        expat->free(reading->parser);
    }
    (void)dlclose(expat->library);
    return whole && !reading->bad;
}

/* ---- listings -------------------------------------------------------------------------------- */

static bool
read_number(const char *text, uint64_t *number_out)
{
    char *end = NULL;

    errno = 0;
    *number_out = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && text[0] >= '0' && text[0] <= '9';
}

static void
on_list_text(struct reading *reading, const char *element, const char *text)
{
    size_t prefix = strlen(reading->prefix);

    if (reading->depth == 2 && strcmp(element, "Key") == 0) {
        reading->has_key = !reading->cut && strncmp(text, reading->prefix, prefix) == 0 &&
                           strlen(text + prefix) < YB_OBJECT_NAME_MAX;
        if (reading->has_key) {
            memcpy(reading->entry.name, text + prefix, strlen(text + prefix) + 1);
        }
    } else if (reading->depth == 2 && strcmp(element, "Size") == 0) {
        reading->has_size = read_number(text, &reading->entry.size);
    } else if (reading->depth == 1 && strcmp(element, "Contents") == 0) {
        if (reading->has_key && reading->has_size) {
            if (reading->count == reading->entries_max) {
                reading->bad = true; /* More than was asked for. */
            } else {
                reading->entries[reading->count++] = reading->entry;
            }
        }
        reading->has_key = reading->has_size = false;
    } else if (reading->depth == 1 && strcmp(element, "NextContinuationToken") == 0) {
        reading->bad = reading->bad || reading->cut;
        memcpy(reading->token, text, strlen(text) + 1);
    } else if (reading->depth == 1 && strcmp(element, "IsTruncated") == 0) {
        reading->truncated = strcmp(text, "true") == 0;
    }
}

bool
yb_object_xml_list(const char *text, size_t length, const char *prefix, struct yb_object_page *page)
{
    struct reading reading = {.on_text = on_list_text,
                              .wanted_root = "ListBucketResult",
                              .prefix = prefix,
                              .entries = page->entries,
                              .entries_max = page->entries_max,
                              .token = page->token};

    page->token[0] = '\0';
    if (!run(&reading, text, length) || (reading.truncated && page->token[0] == '\0')) {
        return false;
    }
    if (!reading.truncated) {
        page->token[0] = '\0';
    }
    page->count = reading.count;
    return true;
}

/* ---- one text -------------------------------------------------------------------------------- */

static void
on_any_text(struct reading *reading, const char *element, const char *text)
{
    if (!reading->found && strcmp(element, reading->element) == 0 && !reading->cut &&
        strlen(text) < reading->value_size) {
        memcpy(reading->value, text, strlen(text) + 1);
        reading->found = true;
    }
}

bool
yb_object_xml_text(const char *text, size_t length, const char *element, char *value_out,
                   size_t size)
{
    struct reading reading = {
        .on_text = on_any_text, .element = element, .value = value_out, .value_size = size};

    return run(&reading, text, length) && reading.found;
}
