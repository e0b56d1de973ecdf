/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing simulate TRACE --report FILE`: one page that needs no other file and no network. The
 * charts are drawn by Chart.js; a program without it writes the same page with tables alone.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/simulate.h"
#include "observe/chart_js.h"

#define CDF_POINTS 101u
#define SPANS      60u

static const char page_head[] =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
    "content=\"width=device-width\"><title>yuebing simulate</title><style>"
    ":root{color-scheme:light dark;--text:#1f2933;--back:#fff;--line:#d5dae0;--faint:#f3f5f7}"
    "@media(prefers-color-scheme:dark){:root{--text:#d9dee4;--back:#16191d;--line:#3a424b;--faint:"
    "#1f242a}}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;"
    "color:var(--text);background:var(--back)}.wide{overflow-x:auto}"
    "table{border-collapse:collapse}td,th{border:1px solid var(--line);padding:.2em .6em;"
    "text-align:right}th{background:var(--faint)}"
    "th:first-child,td:first-child{text-align:left}.charts{display:grid;grid-template-columns:"
    "repeat(auto-fit,minmax(min(30em,100%),1fr));gap:2em}.charts div{min-width:0}"
    "</style></head><body><h1>yuebing simulate</h1>"
    "<p id=\"what\"></p><div class=\"charts\" id=\"charts\"></div><h2>Times</h2><div "
    "class=\"wide\">"
    "<table id=\"times\"></table></div><h2>Links</h2><div class=\"wide\"><table id=\"links\">"
    "</table></div><h2>Settings</h2><table id=\"settings\"></table>\n<script>\n";

static const char page_code[] =
    "const show=c=>typeof c!=='number'?c:Number.isInteger(c)||Math.abs(c)>=1e4?"
    "Math.round(c).toLocaleString('en'):c.toPrecision(4);\n"
    "const put=(id,rows)=>{const t=document.getElementById(id);rows.forEach((r,i)=>{const l="
    "t.insertRow();r.forEach(c=>{const e=document.createElement(i?'td':'th');e.textContent="
    "show(c);l.append(e)})})};\n"
    "document.getElementById('what').textContent=`${run.trace}: ${run.requests} requests, "
    "${run.done} done, ${run.rejected} rejected, ${(100*run.hit).toFixed(2)} % of prompt tokens "
    "reused, ${run.events} events. Times are simulated.`;\n"
    "const q=['mean','p50','p90','p95','p99','max'];\n"
    "put('times',[['',...q],...[['first token, s','ttft_s'],['per token after it, ms','tpot_ms'],"
    "['between tokens, ms','tbt_ms']].map(([n,k])=>[n,...q.map(x=>run[k][x])])]);\n"
    "put('links',[['link','GB','busy, mean, %','busy, most, %'],...run.links.map(l=>[l.link,"
    "l.bytes/1e9,100*l.use_mean,100*l.use_max])]);\n"
    "put('settings',[['setting','value'],...Object.entries(run.settings).map(([k,v])=>[k,`${v}`])]"
    ");\n"
    "const hues=['#3b82f6','#e8890c','#22a06b','#a855f7','#8290a3','#c9d1da'],charts=[];\n"
    "const tint=()=>{const s=getComputedStyle(document.documentElement);Chart.defaults.color="
    "s.getPropertyValue('--text');Chart.defaults.borderColor=s.getPropertyValue('--line')};\n"
    "const chart=(title,type,labels,sets,options)=>{if(typeof Chart==='undefined')return;tint();"
    "const d=document.createElement('div'),c=document.createElement('canvas');d.append(c);document."
    "getElementById('charts').append(d);sets.forEach((s,i)=>{s.borderColor=type==='doughnut'?"
    "'transparent':hues[i];s.backgroundColor=type==='doughnut'?hues:hues[i];s.borderWidth="
    "type==='line'?2:0});charts.push(new Chart(c,{type,data:{labels,datasets:sets},options:{"
    "animation:false,plugins:{title:{display:true,text:title}},...options}}))};\n"
    /* Colours are read when a chart is made: another scheme makes them anew. */
    "const draw=()=>{charts.splice(0).forEach(c=>{const d=c.canvas.parentNode;c.destroy();"
    "d.remove()});\n"
    "chart('Time to first token: share of requests that have it','line',undefined,[{label:"
    "'% of requests',data:run.cdf_s.map((x,i)=>({x,y:i})),pointRadius:0}],{scales:{x:{type:"
    "'logarithmic',title:{display:true,text:'s'}}}});\n"
    "chart('Time to first token over time','line',run.spans.map(s=>(s.at_s/60).toFixed(1)),"
    "[{label:'mean, s',data:run.spans.map(s=>s.mean_s),pointRadius:0},{label:'p99, s',data:"
    "run.spans.map(s=>s.p99_s),pointRadius:0}],{scales:{x:{title:{display:true,text:'min'}}}});\n"
    "chart('Where the tokens of prompts came from, %','doughnut',Object.keys(run.sources),[{data:"
    "Object.values(run.sources).map(x=>100*x)}],{aspectRatio:2});\n"
    "chart('Links: share of time that they were busy, %','bar',run.links.map(l=>l.link),[{label:"
    "'mean',data:run.links.map(l=>100*l.use_mean)},{label:'busiest',data:run.links.map(l=>100*"
    "l.use_max)}],{})};\n"
    "draw();matchMedia('(prefers-color-scheme:dark)').addEventListener('change',draw);\n"
    "if(typeof Chart==='undefined')document.getElementById('charts').textContent="
    "'This program was built without Chart.js (libjs-chart.js): tables alone.';\n"
    "</script></body></html>\n";

static int
compare(const void *a, const void *b)
{
    const uint64_t *left = a;
    const uint64_t *right = b;

    return (*left > *right) - (*left < *right);
}

/* The time to the first token that each percent of the requests had at most. */
static json_t *
cdf_json(const struct yb_simulate_shown *shown)
{
    uint32_t count = shown->trace->request_count;
    uint64_t *sorted = calloc(count, sizeof(*sorted));
    json_t *points = json_array();
    uint32_t first = 0;

    if (sorted == NULL) {
        return points;
    }
    memcpy(sorted, shown->result->ttft_ns, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare);
    while (first < count && sorted[first] == 0) { /* Rejected. */
        first++;
    }
    for (uint32_t i = 0; i < CDF_POINTS && first < count; i++) {
        uint64_t at = first + (uint64_t)(count - first - 1) * i / (CDF_POINTS - 1);

        (void)json_array_append_new(points, json_real((double)sorted[at] / 1e9));
    }
    free(sorted);
    return points;
}

static json_t *
span_json(uint64_t *values, uint32_t count, double at_s)
{
    struct yb_result_times times = yb_result_times(values, count);

    return json_pack("{s:f,s:f,s:f}", "at_s", at_s, "mean_s", times.mean_ns / 1e9, "p99_s",
                     (double)times.p99_ns / 1e9);
}

/* The same over time: requests by when they came. */
static json_t *
spans_json(const struct yb_simulate_shown *shown)
{
    const struct yb_trace *trace = shown->trace;
    uint64_t start_ns = trace->requests[0].arrival_ns;
    uint64_t span_ns =
        (trace->requests[trace->request_count - 1].arrival_ns - start_ns) / SPANS + 1;
    uint64_t *values = calloc(trace->request_count, sizeof(*values));
    json_t *spans = json_array();
    uint32_t from = 0;

    for (uint32_t i = 0; i < SPANS && values != NULL; i++) {
        uint32_t count = 0;

        while (from + count < trace->request_count &&
               trace->requests[from + count].arrival_ns < start_ns + (i + 1) * span_ns) {
            values[count] = shown->result->ttft_ns[from + count];
            count++;
        }
        (void)json_array_append_new(spans, span_json(values, count, (double)(i * span_ns) / 1e9));
        from += count;
    }
    free(values);
    return spans;
}

static bool
write_page(const struct yb_simulate_shown *shown, FILE *file)
{
    json_t *run = yb_simulate_json(shown);
    size_t script;
    const char *chart_js = yb_chart_js(&script);
    bool ok;

    if (run == NULL) {
        return false;
    }
    (void)json_object_set_new(run, "cdf_s", cdf_json(shown));
    (void)json_object_set_new(run, "spans", spans_json(shown));
    ok = fputs(page_head, file) >= 0 && fwrite(chart_js, 1, script, file) == script &&
         fputs("\n</script><script>const run=", file) >= 0;
    /* `</` would end the script, also inside a name. */
    ok =
        ok && json_dumpf(run, file, JSON_COMPACT | JSON_ESCAPE_SLASH | JSON_REAL_PRECISION(6)) == 0;
    ok = ok && fputs(";\n", file) >= 0 && fputs(page_code, file) >= 0;
    json_decref(run);
    return ok;
}

bool
yb_simulate_page(struct yb_cli *cli, const struct yb_simulate_shown *shown, const char *path)
{
    FILE *file = fopen(path, "w");
    bool ok;

    if (file == NULL) {
        fprintf(cli->err, "yuebing simulate: cannot write %s: %m\n", path);
        return false;
    }
    ok = write_page(shown, file);
    ok = fclose(file) == 0 && ok;
    if (!ok) {
        fprintf(cli->err, "yuebing simulate: cannot write %s: %m\n", path);
    }
    return ok;
}
