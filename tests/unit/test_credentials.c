/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: what a process proves who it is with is loaded whole, or not at all.
 * Method: real files, good ones and those that cannot be used.
 */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/credentials.h"

#define SECRET "secret 0123456789abcdef0123456789abcdef\n"

static char folder[] = "/tmp/yuebing-credentials-XXXXXX";
static char secret[64];

static int
begin(void **state)
{
    int fd;

    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(secret, sizeof(secret), "%s/secret", folder);
    fd = open(secret, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    return fd < 0 || write(fd, SECRET, strlen(SECRET)) != (ssize_t)strlen(SECRET) || close(fd) != 0
               ? -1
               : 0;
}

static int
end(void **state)
{
    (void)state;
    return unlink(secret) == 0 && rmdir(folder) == 0 ? 0 : -1;
}

static enum yb_status
load(struct yb_credentials_options options, struct yb_credentials *credentials, char *message)
{
    options.wall_ns = yb_clock_wall(yb_clock_system());
    memset(credentials, 0xa5, sizeof(*credentials));
    return yb_credentials_load(&options, credentials, message, 300);
}

static void
assert_none(const struct yb_credentials *credentials)
{
    assert_null(credentials->auth);
    assert_null(credentials->tls_server);
    assert_null(credentials->tls_client);
}

static void
test_credentials__are_what_the_options_name(void **state)
{
    struct yb_credentials credentials;
    char message[300] = "";

    (void)state;
    assert_int_equal(load((struct yb_credentials_options){0}, &credentials, message), YB_OK);
    assert_none(&credentials);
    for (unsigned i = 1; i < 8; i++) {
        const struct yb_credentials_options options = {
            .secret_file = (i & 1) != 0 ? secret : NULL,
            .tls = (i & 2) != 0,
            .listens = (i & 4) != 0,
        };

        assert_int_equal(load(options, &credentials, message), YB_OK);
        assert_int_equal(credentials.auth != NULL, (i & 1) != 0);
        assert_int_equal(credentials.tls_client != NULL, (i & 2) != 0);
        assert_int_equal(credentials.tls_server != NULL, (i & 6) == 6);
        yb_credentials_unload(&credentials);
        assert_none(&credentials);
        yb_credentials_unload(&credentials);
    }
}

static void
test_credentials__without_their_secret_file_are_denied_and_it_is_named(void **state)
{
    struct yb_credentials credentials;
    char message[300] = "";

    (void)state;
    assert_int_equal(
        load((struct yb_credentials_options){.secret_file = "/nowhere/secret", .tls = true},
             &credentials, message),
        YB_DENIED);
    assert_non_null(strstr(message, "/nowhere/secret"));
    assert_none(&credentials);
}

static void
test_credentials__are_none_when_a_later_file_cannot_be_used(void **state)
{
    struct yb_credentials credentials;
    char message[300] = "";

    (void)state;
    assert_int_not_equal(load((struct yb_credentials_options){.secret_file = secret,
                                                              .tls = true,
                                                              .listens = true,
                                                              .authority_file = "/nowhere/ca.pem"},
                              &credentials, message),
                         YB_OK);
    assert_non_null(strstr(message, "/nowhere/ca.pem"));
    assert_none(&credentials);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_credentials__are_what_the_options_name),
        cmocka_unit_test(test_credentials__without_their_secret_file_are_denied_and_it_is_named),
        cmocka_unit_test(test_credentials__are_none_when_a_later_file_cannot_be_used),
    };

    return cmocka_run_group_tests_name("credentials", tests, begin, end);
}
