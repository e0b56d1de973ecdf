/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/object/s3_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEME         "s3://"
#define FILE_BYTES_MAX (1u << 20)
#define MULTIPART      (16ull << 20)

static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";

static enum yb_status
wrong(char why_out[YB_OBJECT_WHY_BYTES], const char *url, const char *what)
{
    (void)snprintf(why_out, YB_OBJECT_WHY_BYTES, "%.100s: %s", url, what);
    return YB_INVALID;
}

/* Copy `length` bytes; false if they do not fit. */
static bool
copy(char *to, size_t size, const char *from, size_t length)
{
    if (length >= size) {
        return false;
    }
    memcpy(to, from, length);
    to[length] = '\0';
    return true;
}

static bool
copy_text(char *to, size_t size, const char *from)
{
    return copy(to, size, from, strlen(from));
}

/* ---- the URL --------------------------------------------------------------------------------- */

static const char *
take_place(const char *url, struct yb_object_s3_settings *settings)
{
    const char *at = url + sizeof(SCHEME) - 1;
    size_t length = strspn(at, plain);
    size_t prefix;

    if (length < 3 || !copy(settings->bucket, sizeof(settings->bucket), at, length)) {
        return "a bucket's name has 3 to 63 letters, digits, '-' or '.'";
    }
    at += length;
    at += *at == '/';
    prefix = strcspn(at, "?");
    for (size_t i = 0; i < prefix; i++) {
        if (strchr(plain, at[i]) == NULL && at[i] != '/') {
            return "a prefix is made of letters, digits, '-', '.', '_' and '/'";
        }
    }
    while (prefix > 0 && at[prefix - 1] == '/') {
        prefix--;
    }
    if (prefix > 64) {
        return "a prefix has at most 64 characters";
    }
    (void)snprintf(settings->prefix, sizeof(settings->prefix), "%.*s%s", (int)prefix, at,
                   prefix > 0 ? "/" : "");
    return NULL;
}

/* One "name=value" of what stands behind the '?'. */
static const char *
take_option(struct yb_object_s3_settings *settings, char profile[64], const char *name,
            const char *value, bool *styled)
{
    bool fits = true;

    if (strcmp(name, "endpoint") == 0) {
        fits = copy_text(settings->endpoint, sizeof(settings->endpoint), value);
    } else if (strcmp(name, "region") == 0) {
        fits = copy_text(settings->region, sizeof(settings->region), value);
    } else if (strcmp(name, "profile") == 0) {
        fits = copy_text(profile, 64, value);
    } else if (strcmp(name, "ca") == 0) {
        fits = copy_text(settings->ca_file, sizeof(settings->ca_file), value);
    } else if (strcmp(name, "style") == 0) {
        settings->host_style = strcmp(value, "host") == 0;
        *styled = true;
        if (!settings->host_style && strcmp(value, "path") != 0) {
            return "style is path or host";
        }
    } else {
        return "behind the '?' stand endpoint=, region=, style=, profile= and ca=, with '&' "
               "between; credentials come from the environment or ~/.aws/credentials";
    }
    return fits ? NULL : "one of the values is too long";
}

static const char *
take_options(const char *url, struct yb_object_s3_settings *settings, char profile[64],
             bool *styled)
{
    const char *from = strchr(url, '?');
    char text[1024];
    char *save = NULL;
    const char *what = NULL;

    if (from == NULL) {
        return NULL;
    }
    if (!copy_text(text, sizeof(text), from + 1)) {
        return "it is too long";
    }
    for (char *pair = strtok_r(text, "&", &save); pair != NULL && what == NULL;
         pair = strtok_r(NULL, "&", &save)) {
        char *equals = strchr(pair, '=');

        if (equals == NULL) {
            return "behind the '?' stand pairs such as region=us-east-1";
        }
        *equals = '\0';
        what = take_option(settings, profile, pair, equals + 1, styled);
    }
    return what;
}

static const char *
check_endpoint(struct yb_object_s3_settings *settings)
{
    size_t length = strlen(settings->endpoint);
    const char *host;

    while (length > 0 && settings->endpoint[length - 1] == '/') {
        settings->endpoint[--length] = '\0';
    }
    host = strncmp(settings->endpoint, "http://", 7) == 0    ? settings->endpoint + 7
           : strncmp(settings->endpoint, "https://", 8) == 0 ? settings->endpoint + 8
                                                             : NULL;
    if (host == NULL || *host == '\0' || strpbrk(host, "/?#@ ") != NULL) {
        return "an endpoint is http:// or https:// and a host, with a port if need be";
    }
    if (strspn(settings->region, plain) != strlen(settings->region)) {
        return "a region is a word such as us-east-1";
    }
    return NULL;
}

/* ---- credentials ----------------------------------------------------------------------------- */

struct wanted {
    struct yb_object_s3_settings *settings;
    const char *profile;
};

static int
on_value(void *context, const char *section, const char *name, const char *value)
{
    struct wanted *wanted = context;
    struct yb_object_s3_settings *settings = wanted->settings;

    if (strcmp(section, wanted->profile) != 0) {
        return 1;
    }
    if (strcmp(name, "aws_access_key_id") == 0) {
        return copy_text(settings->key, sizeof(settings->key), value);
    }
    if (strcmp(name, "aws_secret_access_key") == 0) {
        return copy_text(settings->secret, sizeof(settings->secret), value);
    }
    if (strcmp(name, "aws_session_token") == 0) {
        return copy_text(settings->token, sizeof(settings->token), value);
    }
    return 1;
}

/* One line of the file, however long: inih's own reader has a bound below that of a token. */
static bool
read_file(const char *path, struct wanted *wanted)
{
    FILE *file = fopen(path, "re");
    char section[64] = "";
    char *line = NULL;
    size_t room = 0, total = 0;
    ssize_t length;

    if (file == NULL) {
        return false;
    }
    while ((length = getline(&line, &room, file)) > 0 && total < FILE_BYTES_MAX) {
        char *at = line + strspn(line, " \t");
        char *equals = strchr(at, '=');

        total += (size_t)length;
        line[strcspn(line, "\r\n")] = '\0';
        if (*at == '[') {
            (void)snprintf(section, sizeof(section), "%.*s", (int)strcspn(at + 1, "]"), at + 1);
        } else if (equals != NULL && *at != '#' && *at != ';') {
            char *value = equals + 1 + strspn(equals + 1, " \t");
            size_t end = strlen(value);

            while (end > 0 && (value[end - 1] == ' ' || value[end - 1] == '\t')) {
                value[--end] = '\0';
            }
            while (equals > at && (equals[-1] == ' ' || equals[-1] == '\t')) {
                equals--;
            }
            *equals = '\0';
            (void)on_value(wanted, section, at, value);
        }
    }
    explicit_bzero(line == NULL ? section : line, line == NULL ? 0 : room);
    free(line);
    (void)fclose(file);
    return true;
}

static bool
is_printable(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if (*at <= ' ' || *at > '~') {
            return false; /* It would end a line of a request's head. */
        }
    }
    return true;
}

static enum yb_status
find_credentials(const char *(*environment)(const char *name), const char *profile,
                 struct yb_object_s3_settings *settings, char why_out[YB_OBJECT_WHY_BYTES])
{
    const char *key = environment("AWS_ACCESS_KEY_ID");
    const char *secret = environment("AWS_SECRET_ACCESS_KEY");
    const char *token = environment("AWS_SESSION_TOKEN");
    const char *named = environment("AWS_SHARED_CREDENTIALS_FILE");
    const char *home = environment("HOME");
    char path[1024];
    struct wanted wanted = {.settings = settings, .profile = profile};

    if (key != NULL && secret != NULL && profile[0] == '\0') {
        if (!copy_text(settings->key, sizeof(settings->key), key) ||
            !copy_text(settings->secret, sizeof(settings->secret), secret) ||
            !copy_text(settings->token, sizeof(settings->token), token == NULL ? "" : token)) {
            settings->key[0] = '\0';
        }
    } else {
        if (profile[0] == '\0') {
            wanted.profile = environment("AWS_PROFILE");
            wanted.profile = wanted.profile == NULL ? "default" : wanted.profile;
        }
        (void)snprintf(path, sizeof(path), "%s%s",
                       named != NULL  ? named
                       : home == NULL ? ""
                                      : home,
                       named != NULL ? "" : "/.aws/credentials");
        (void)read_file(path, &wanted);
    }
    if (settings->key[0] == '\0' || settings->secret[0] == '\0' || !is_printable(settings->key) ||
        !is_printable(settings->secret) || !is_printable(settings->token)) {
        (void)snprintf(why_out, YB_OBJECT_WHY_BYTES,
                       "there are no credentials for the object store: set AWS_ACCESS_KEY_ID and "
                       "AWS_SECRET_ACCESS_KEY, or write a section [%.40s] to ~/.aws/credentials",
                       wanted.profile[0] == '\0' ? "default" : wanted.profile);
        return YB_DENIED;
    }
    return YB_OK;
}

/* ---- together -------------------------------------------------------------------------------- */

static const char *
first_of(const char *(*environment)(const char *name), const char *a, const char *b,
         const char *otherwise)
{
    const char *value = environment(a);

    value = value == NULL && b != NULL ? environment(b) : value;
    return value == NULL ? otherwise : value;
}

enum yb_status
yb_object_s3_settings_read(const char *url, const char *(*environment)(const char *name),
                           struct yb_object_s3_settings *settings_out,
                           char why_out[YB_OBJECT_WHY_BYTES])
{
    struct yb_object_s3_settings *to = settings_out;
    char profile[64] = "";
    bool styled = false, own;
    const char *what;

    memset(to, 0, sizeof(*to));
    to->multipart_bytes = MULTIPART;
    if (strncmp(url, SCHEME, sizeof(SCHEME) - 1) != 0) {
        return wrong(why_out, url, "it is no s3:// URL");
    }
    what = take_place(url, to);
    what = what == NULL ? take_options(url, to, profile, &styled) : what;
    if (what != NULL) {
        return wrong(why_out, url, what);
    }
    if (to->region[0] == '\0' &&
        !copy_text(to->region, sizeof(to->region),
                   first_of(environment, "AWS_REGION", "AWS_DEFAULT_REGION", "us-east-1"))) {
        return wrong(why_out, url, "AWS_REGION is too long");
    }
    if (to->endpoint[0] == '\0' &&
        !copy_text(to->endpoint, sizeof(to->endpoint),
                   first_of(environment, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", ""))) {
        return wrong(why_out, url, "AWS_ENDPOINT_URL is too long");
    }
    if (to->ca_file[0] == '\0' && !copy_text(to->ca_file, sizeof(to->ca_file),
                                             first_of(environment, "AWS_CA_BUNDLE", NULL, ""))) {
        return wrong(why_out, url, "AWS_CA_BUNDLE is too long");
    }
    own = to->endpoint[0] != '\0';
    if (!own) {
        (void)snprintf(to->endpoint, sizeof(to->endpoint), "https://s3.%s.amazonaws.com",
                       to->region);
    }
    to->host_style = styled ? to->host_style : !own;
    what = check_endpoint(to);
    return what != NULL ? wrong(why_out, url, what)
                        : find_credentials(environment, profile, to, why_out);
}
