/* SPDX-License-Identifier: Apache-2.0
 *
 * version.h -- which Yuebing this is.
 *
 * The library version follows semantic versioning; the shared library exports
 * versioned symbols, so a program built against 0.1 runs on any later 0.x that
 * still carries them. The wire has its own version (docs/protocol.md).
 */
#ifndef YB_VERSION_H
#define YB_VERSION_H

#define YB_VERSION_MAJOR  0
#define YB_VERSION_MINOR  1
#define YB_VERSION_PATCH  0
#define YB_VERSION_STRING "0.1.0"

#if defined(__GNUC__)
#define YB_API __attribute__((visibility("default")))
#else
#define YB_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Return the version of the library that is loaded, such as "0.1.0": a static string.
 * It may differ from YB_VERSION_STRING, the version of the header the caller was built with. */
YB_API const char *yb_version(void);

#ifdef __cplusplus
}
#endif

#endif /* YB_VERSION_H */
