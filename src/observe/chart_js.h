/* SPDX-License-Identifier: Apache-2.0
 *
 * chart_js.h -- Chart.js (MIT), which draws the charts of pages that we serve or write. The build
 * puts it into the program if it finds Debian's libjs-chart.js; otherwise pages have tables alone.
 */
#ifndef YB_OBSERVE_CHART_JS_H
#define YB_OBSERVE_CHART_JS_H

#include <stddef.h>

/* Return its text and length; "" where the build did not find it. */
const char *yb_chart_js(size_t *length_out);

#endif /* YB_OBSERVE_CHART_JS_H */
