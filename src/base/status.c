/* SPDX-License-Identifier: Apache-2.0 */
#include "yuebing/status.h"

const char *
yb_status_name(enum yb_status status)
{
    switch (status) {
#define X(name, value, scope, text) \
    case YB_##name: return #name;
        YB_STATUS_MAP(X)
#undef X
    }
    return "UNKNOWN";
}

const char *
yb_status_text(enum yb_status status)
{
    switch (status) {
#define X(name, value, scope, text) \
    case YB_##name: return text;
        YB_STATUS_MAP(X)
#undef X
    }
    return "a status this version does not know";
}

enum yb_scope
yb_status_scope(enum yb_status status)
{
    switch (status) {
#define X(name, value, scope, text) \
    case YB_##name: return YB_SCOPE_##scope;
        YB_STATUS_MAP(X)
#undef X
    }
    return YB_SCOPE_PEER;
}

bool
yb_status_known(int value)
{
    switch (value) {
#define X(name, value, scope, text) case (value):
        YB_STATUS_MAP(X)
#undef X
        return true;
    default: return false;
    }
}
