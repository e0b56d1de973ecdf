/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/chart_js.h"

#include "base/embed.h"

#ifdef YB_CHART_JS
YB_EMBED(yb_observe_chart_js, YB_CHART_JS);
#else
static const char yb_observe_chart_js[] = "";
static const char *const yb_observe_chart_js_end = yb_observe_chart_js;
#endif

const char *
yb_chart_js(size_t *length_out)
{
    *length_out = (size_t)(yb_observe_chart_js_end - yb_observe_chart_js);
    return yb_observe_chart_js;
}
