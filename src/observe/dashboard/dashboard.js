// SPDX-License-Identifier: Apache-2.0
// Draws what /v1/cluster/stream tells. Four parts: numbers out of samples, words for people, drawing, and the stream.
'use strict';

const KEPT_MAX = 1200;         // Points of charts.
const EVENTS_MAX = 200;
const INSTRUCTIONS_MAX = 400;
const GAP_MS = 45e3;           // Points further apart are not joined by a line.

// ---- numbers out of samples -----------------------------------------------------------------------

// Rates need what was said before: counters of one process, which begin anew when it does.
class Counters {
  constructor(sample, before) {
    this.at = sample.at_ms;
    this.of = new Map(sample.processes.map(p => [p.where, p.up ? parse(p.series) : null]));
    // What each said last, and when: who has missed a sample went on counting meanwhile.
    this.last = new Map();
    for (const [where, rows] of this.of) {
      const said = rows ? {at: this.at, rows} : before?.last.get(where);
      if (said) this.last.set(where, said);
    }
  }
  // The sum over processes of how much the series that `wanted` takes have grown, and a Map by `by`, if given.
  grown(before, wanted, by) {
    const sums = new Map();
    for (const [where, rows] of this.of) {
      const old = before?.last.get(where)?.rows;
      if (!rows || !old) continue;
      for (const [key, row] of rows) {
        if (!wanted(row)) continue;
        const was = old.get(key)?.value ?? 0;
        const more = row.value >= was ? row.value - was : row.value;
        const name = by ? by(row) : '';
        sums.set(name, (sums.get(name) ?? 0) + more);
      }
    }
    return by ? sums : sums.get('') ?? 0;
  }
  // The sum of gauges of this name.
  sum(name, labels = {}) {
    let sum = 0;
    for (const rows of this.of.values())
      for (const row of rows?.values() ?? [])
        if (row.name === name && Object.entries(labels).every(([k, v]) => row.labels[k] === v)) sum += row.value;
    return sum;
  }
}

function parse(series) {
  const rows = new Map();
  for (const [key, value] of Object.entries(series)) {
    const brace = key.indexOf('{');
    const labels = {};
    if (brace > 0) for (const [, k, v] of key.slice(brace).matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)) labels[k] = v;
    rows.set(key, {name: brace > 0 ? key.slice(0, brace) : key, labels, value});
  }
  return rows;
}

const named = name => row => row.name === name;

// Quantiles of a histogram's growth: from its cumulative buckets, straight within each.
function quantiles(buckets, shares) {
  const edges = [...buckets].map(([le, count]) => [le === '+Inf' ? Infinity : +le, count]).sort((a, b) => a[0] - b[0]);
  const total = edges.at(-1)?.[1] ?? 0;
  if (!total) return null;
  return shares.map(share => {
    let below = 0, from = 0;
    for (const [edge, count] of edges) {
      if (count >= share * total) {
        if (edge === Infinity) return from;
        return count > below ? from + (edge - from) * (share * total - below) / (count - below) : edge;
      }
      below = count;
      from = edge;
    }
    return from;
  });
}

// Where the tokens of prompts came from; or, where no engine is watched, what nodes were asked for.
const SOURCES = {device: 'own memory', engine: 'another engine', dram: "the store's memory", ssd: 'SSD', object: 'object store', miss: 'computed'};
// A prompt that is handed over was counted by the engine that computed it: once is enough.
const PROMPTS = Object.fromEntries(Object.entries(SOURCES).filter(([tier]) => tier !== 'engine'));
const toEngines = word => `to engines from ${word}`;
const TIERS = {device: 'device', dram: 'memory', ssd: 'SSD', object: 'object store', miss: 'not found'};
const FLOWS = [
  ['read from nodes', 'node_get_bytes_total'], ['put to nodes', 'node_put_bytes_total'],
  ['copied between nodes', 'node_copied_bytes_total'], ['up from disks and objects', 'node_loaded_bytes_total'],
  ['down to disks and objects', 'node_stored_bytes_total']];

// What is turned away, by what turns it away and why. Others' mistakes and full machines, not damage.
const REFUSALS = {
  conductor_rejected_total: 'request rejected', conductor_calls_refused_total: 'call refused',
  net_refused_total: 'connection refused', engine_requests_refused_total: 'engine full'};
const because = (word, row) => [word, Object.values(row.labels).join(', ')].filter(Boolean).join(': ');
const kindOf = row => because(row.name.replace(/_total$/, '').replaceAll('_', ' '), row);

// How much each of the counters in `words` has grown in a second, by name; those that have not are left out.
function rates(counters, before, words, nameOf) {
  const grown = [...counters.grown(before, row => Object.hasOwn(words, row.name), nameOf)];
  return Object.fromEntries(grown.filter(([, n]) => n > 0).map(([name, n]) => [name, 1e3 * n / (counters.at - before.at)]));
}

// What part of `counts`, by tier, each of `words` has, in the order of these.
function shares(counts, words) {
  const total = Object.keys(words).reduce((sum, tier) => sum + (counts.get(tier) ?? 0), 0);
  return total ? Object.fromEntries(Object.entries(words).map(([tier, word]) => [word, 100 * (counts.get(tier) ?? 0) / total])) : null;
}

function derive(sample, counters, before) {
  const seconds = before ? (counters.at - before.at) / 1e3 : 0;
  const point = {at: sample.at_ms, seconds, hits: null, ttft: null, flow: null, work: null, refused: null, failed: null, arrived: []};
  if (!(seconds > 0)) return point;
  const byTier = name => counters.grown(before, named(name), row => row.labels.tier);
  point.hits = shares(byTier('engine_source_tokens_total'), PROMPTS);
  if (!counters.sum('engine_kv_blocks')) point.hits = shares(byTier('node_found_total'), TIERS);
  const buckets = counters.grown(before, row => row.name.includes('ttft') && row.name.endsWith('_bucket'), row => row.labels.le);
  const times = quantiles(buckets, [.5, .95, .99]);
  if (times) point.ttft = {P50: times[0] * 1e3, P95: times[1] * 1e3, P99: times[2] * 1e3};
  const paths = counters.grown(before, named('link_received_bytes_total'), row => `over ${row.labels.path}`);
  const loaded = [...byTier('engine_loaded_bytes_total')].map(([tier, n]) => [toEngines(SOURCES[tier] ?? tier), n]);
  const flows = [...FLOWS.map(([name, metric]) => [name, counters.grown(before, named(metric))]), ...loaded, ...paths];
  point.flow = Object.fromEntries(flows.filter(([, n]) => n > 0).map(([name, n]) => [name, n / seconds / 1e6]));
  point.work = {
    waiting: counters.sum('engine_requests_waiting') + counters.sum('engine_requests_prefilling'),
    running: counters.sum('engine_requests_running'),
    'ended per second': counters.grown(before, named('engine_requests_ended_total')) / seconds};
  point.refused = rates(counters, before, REFUSALS, row => because(REFUSALS[row.name], row));
  point.failed = rates(counters, before, FAILURES, kindOf);
  point.arrived = [...counters.grown(before, named('conductor_decision_to_arrival_seconds_bucket'), row => `${row.labels.tier} ${row.labels.le}`)];
  return point;
}

// ---- words ----------------------------------------------------------------------------------------

// Counters that should stand still, and what it means that one does not; and those of REFUSALS that tell somebody something.
const TURNED_AWAY = {
  engine_requests_refused_total: n => `${n} requests were refused: no engine had room`,
  conductor_rejected_total: n => `${n} requests were rejected early: nobody could have met their times`};
const FAILURES = {
  engine_wrong_bytes_total: n => `${n} wrong bytes came from the store and were refused: check disks and memory of its nodes`,
  engine_load_failures_total: n => `${n} values were found in the store and did not come: their tokens are computed instead`,
  engine_store_failures_total: n => `${n} values were not taken by the store: later requests compute them again`,
  engine_dropped_stores_total: n => `${n} blocks were not stored, as too many waited: the store is slower than the engines`,
  engine_requests_failed_total: n => `${n} requests failed`,
  conductor_instances_expired_total: n => `${n} engines have stopped reporting: they get no more requests`,
  conductor_requests_forgotten_total: n => `${n} requests were never reported as ended`,
  directory_died_total: n => `${n} nodes have lost their lease: their blocks are not found until they are back`,
  directory_copies_failed_total: (n, row) => `${n} copies between nodes failed (${row.labels.status ?? 'unknown'})`,
  directory_repairs_lost_total: n => `${n} blocks lost their last copy but one and could not be repaired`,
  node_loads_failed_total: (n, row) => `${n} blocks could not be read from a tier below memory (${row.labels.status ?? 'unknown'})`,
  node_stores_failed_total: (n, row) => ['NO_SPACE', 'QUOTA'].includes(row.labels.status)
    ? `${n} blocks stay in memory alone: a tier below is full, or its write budget is spent (${row.labels.status})`
    : `${n} blocks could not be stored in a tier below memory (${row.labels.status ?? 'unknown'})`,
  node_kills_failed_total: (n, row) => `${n} removed blocks could not be marked so on a tier below memory (${row.labels.status ?? 'unknown'})`,
  node_pins_lapsed_total: n => `${n} pins ran out unreleased: a reader died, or forgot them`,
  net_connect_failed_total: (n, row) => `${n} connections could not be made (${row.labels.status ?? 'unknown'})`,
  object_errors_total: (n, row) => `${n} requests to the object store failed (${Object.values(row.labels).join(', ')})`};

function failures(sample, counters, before) {
  const events = [];
  for (const process of sample.processes) {
    const rows = counters.of.get(process.where), old = before?.last.get(process.where)?.rows;
    if (!process.up && before && before.of.get(process.where) !== null)
      events.push({at_ms: sample.at_ms, level: 'error', where: process.where, text: `does not answer: ${process.why}`});
    if (!rows || !old) continue;
    for (const [key, row] of rows) {
      const words = FAILURES[row.name] ?? TURNED_AWAY[row.name], more = row.value - (old.get(key)?.value ?? 0);
      if (words && more > 0) events.push({at_ms: sample.at_ms, level: row.name.includes('wrong_bytes') ? 'error' : 'warn',
        where: process.where, text: words(count(more), row)});
    }
  }
  return events;
}

const count = n => Math.round(n).toLocaleString('en');
function bytes(n) {
  for (const unit of ['B', 'KB', 'MB', 'GB', 'TB']) {
    if (n < 1000 || unit === 'TB') return `${n < 10 && unit !== 'B' ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1000;
  }
}
// What goes between each process and each of its peers, by path: bytes per second, and the part of the time in which something did.
const LINKS = {link_received_bytes_total: 'received', link_sent_bytes_total: 'sent', link_busy_seconds_total: 'busy'};
const LINKS_MAX = 24;
function links(counters, before) {
  const found = new Map();
  if (!before || !(counters.at > before.at)) return null;
  for (const [where, rows] of counters.of) {
    const old = before.last.get(where);
    if (!rows || !old) continue;
    const seconds = (counters.at - old.at) / 1e3;
    for (const [key, row] of rows) {
      const field = LINKS[row.name], was = old.rows.get(key)?.value ?? 0;
      if (!field) continue;
      const id = `${where} ${row.labels.peer} ${row.labels.path}`;
      if (!found.has(id)) found.set(id, {where, peer: row.labels.peer, path: row.labels.path, received: 0, sent: 0, busy: 0});
      found.get(id)[field] = (row.value >= was ? row.value - was : row.value) / seconds;
    }
  }
  return [...found.values()].sort((a, b) => b.received + b.sent - a.received - a.sent).slice(0, LINKS_MAX);
}

const percent = n => `${n < 10 ? n.toFixed(1) : Math.round(n)} %`;
const millis = n => n < 10 ? `${n.toFixed(1)} ms` : n < 1e4 ? `${Math.round(n)} ms` : `${(n / 1e3).toFixed(1)} s`;
const perSecond = n => `${n < 10 ? n.toFixed(1) : count(n)}/s`;
const clock = at => new Date(at).toLocaleTimeString('en-GB');

function roles(series) {
  const has = word => Object.keys(series).some(key => key.startsWith(word));
  return ['conductor', 'directory', 'node', 'engine'].filter(role => has(`${role}_`)).join(', ') || 'nothing yet';
}

// ---- drawing --------------------------------------------------------------------------------------

const $ = id => document.getElementById(id);
function make(tag, text, attributes = {}, ...children) {
  const element = document.createElement(tag);
  if (text != null) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) if (value != null) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const state = {
  points: [], last: null, counters: null, links: [], events: [], instructions: [], minutes: 5, level: 'warn', paused: false,
  number: 0, nodeStates: new Map()};
const charts = new Map();
// A name keeps its colour, whatever else is drawn beside it; both schemes can read them.
const HUES = ['#3b82f6', '#d97706', '#16a34a', '#a855f7', '#db2777', '#0d9488', '#92400e', '#6366f1', '#84cc16', '#0891b2', '#f43f5e', '#78716c'];
const DIM = '#8290a3';
const NAMES = [Object.values(SOURCES), Object.values(TIERS), [...FLOWS.map(([name]) => name), ...Object.values(SOURCES).map(toEngines)], ['waiting', 'running', 'ended per second'],
  ['P50', 'P95', 'P99']];
function hue(name, index) {
  const known = NAMES.find(names => names.includes(name));
  return name === SOURCES.miss || name === TIERS.miss ? DIM : HUES[(known ? known.indexOf(name) : index) % HUES.length];
}

function tint() {
  if (typeof Chart === 'undefined') return;
  const style = getComputedStyle(document.documentElement);
  Chart.defaults.color = style.getPropertyValue('--dim');
  Chart.defaults.borderColor = style.getPropertyValue('--line');
}

function chart(id, type, options) {
  if (typeof Chart === 'undefined') return null;
  if (!charts.has(id)) {
    tint();
    charts.set(id, new Chart($(id).querySelector('canvas'), {type, data: {datasets: []}, options: {
      parsing: options.indexAxis ? {} : false, normalized: !options.indexAxis, // Bars from here to there are parsed.
      animation: false, maintainAspectRatio: false, indexAxis: options.indexAxis ?? 'x',
      interaction: {mode: 'nearest', axis: 'x', intersect: false},
      plugins: {legend: {position: 'bottom', labels: {boxWidth: 12, boxHeight: 12}}, ...options.plugins},
      scales: options.scales}}));
  }
  return charts.get(id);
}

const timeAxis = () => ({type: 'linear', ticks: {maxTicksLimit: 6, maxRotation: 0, callback: clock}, grid: {display: false}});
const lineTips = words => ({tooltip: {callbacks: {title: items => items.length ? clock(items[0].parsed.x) : '',
  label: item => `${item.dataset.label}: ${words(item.parsed.y)}`}}});

// One line of a chart: a gap where nothing was known, or nobody asked for long.
function line(points, field, name) {
  const row = [];
  for (const point of points) {
    const value = point[field]?.[name];
    if (row.length && point.at - row.at(-1).x > GAP_MS) row.push({x: point.at - 1, y: null});
    row.push({x: point.at, y: point[field] ? value ?? 0 : null});
  }
  return row;
}

const shownFrom = () => (state.last?.at_ms ?? 0) - state.minutes * 60e3;
const shown = () => state.points.filter(point => point.at >= shownFrom());
const dataset = (name, i, data) => ({label: name, data, borderColor: hue(name, i), backgroundColor: hue(name, i)});

// Below it: the latest of each; or, of rates that are `counted`, how many there were in the time shown.
function caption(points, field, names, {words, counted}) {
  const latest = points.findLast(point => point[field])?.[field];
  const sum = name => points.reduce((all, point) => all + (point[field]?.[name] ?? 0) * point.seconds, 0);
  if (!latest || !names.length) return counted ? 'None in the time shown.' : 'Nothing yet.';
  return counted ? names.map(name => `${name} × ${count(sum(name))}`).join(' · ')
    : names.filter(name => latest[name] != null).map(name => `${name} ${words(latest[name])}`).join(' · ');
}

// A line from nowhere to nowhere is not drawn: what happened in one interval alone is a dot.
const isLonely = (data, i) => data[i]?.y != null && data[i - 1]?.y == null && data[i + 1]?.y == null;

function lines(id, field, {stacked = false, counted = false, unit, words, max}) {
  const from = shownFrom(), points = shown();
  const names = [...new Set(points.flatMap(point => Object.keys(point[field] ?? {})))];
  const plot = chart(id, 'line', {plugins: lineTips(words), scales: {x: timeAxis(),
    y: {stacked, min: 0, max, title: {display: true, text: unit}, ticks: {maxTicksLimit: 6}}}});
  if (plot) {
    plot.options.scales.x.min = Math.max(from, state.points[0]?.at ?? from);
    plot.options.scales.x.max = state.last?.at_ms;
    plot.data.datasets = names.map((name, i) => ({...dataset(name, i, line(points, field, name)),
      backgroundColor: hue(name, i) + (stacked ? 'b0' : ''), fill: stacked ? (i ? '-1' : 'origin') : false,
      borderWidth: stacked ? 1 : 2, pointRadius: at => isLonely(at.dataset.data, at.dataIndex) ? 3 : 0, pointHitRadius: 6, spanGaps: false}));
    plot.update();
  }
  $(id).querySelector('figcaption').textContent = caption(points, field, names, {words, counted});
}

// How long what was moved was under way from its decision, in the time shown: how many arrivals of each tier in each bucket.
function arrivals() {
  const tiers = new Map(), edges = new Set();
  for (const [key, n] of shown().flatMap(point => point.arrived)) {
    const [tier, edge] = key.split(' '), buckets = tiers.get(tier) ?? new Map();
    tiers.set(tier, buckets.set(edge, (buckets.get(edge) ?? 0) + n));
    edges.add(edge);
  }
  const order = [...edges].sort((a, b) => (a === '+Inf' ? Infinity : +a) - (b === '+Inf' ? Infinity : +b));
  const rows = [...tiers].map(([tier, buckets]) => {
    const below = order.map(edge => buckets.get(edge) ?? 0); // An edge that it lacks is below its first.
    return [TIERS[tier] ?? tier, below.map((n, i) => n - (i ? below[i - 1] : 0)), quantiles(buckets, [.5, .99]), below.at(-1)];
  }).filter(([, , , total]) => total > 0);
  const plot = chart('arrivals', 'bar', {scales: {x: {type: 'category', stacked: true, grid: {display: false}},
    y: {stacked: true, min: 0, title: {display: true, text: 'instructions'}, ticks: {maxTicksLimit: 6, precision: 0}}}});
  if (plot) {
    plot.data.labels = order.map(edge => edge === '+Inf' ? 'longer' : millis(edge * 1e3));
    plot.data.datasets = rows.map(([name, bars], i) => dataset(name, i, bars.map((y, x) => ({x, y}))));
    plot.update();
  }
  $('arrivals').querySelector('figcaption').textContent = rows.length
    ? rows.map(([name, , [p50, p99], total]) => `${name}: ${count(total)}, P50 ${millis(p50 * 1e3)}, P99 ${millis(p99 * 1e3)}`).join(' · ')
    : 'None in the time shown.';
}

// ---- instructions ----

const OUTCOMES = {in_time: '#16a34a', joined: '#0d9488', already_there: '#3b82f6', late: '#d97706', failed: '#dc2626',
  source_gone: '#dc2626', expired: '#a855f7', cancelled: DIM, evicted_unused: DIM};

function timeline() {
  const rows = state.instructions.filter(row => row.ended_ms >= shownFrom()).slice(-60);
  const plot = rows.length || charts.has('timeline') ? chart('timeline', 'bar', {indexAxis: 'y',
    plugins: {legend: {display: false}, tooltip: {callbacks: {title: items => items[0]?.raw.row.title ?? '',
      label: item => item.raw.row.label}}},
    scales: {x: timeAxis(), y: {type: 'linear', reverse: true, ticks: {display: false}, grid: {display: false}}}}) : null;
  const bar = (row, y, begin, end, colour) => ({x: [begin, Math.max(end, begin + 1)], y, row, colour}); // At least 1 ms wide.
  const bars = rows.flatMap((row, y) => {
    const colour = OUTCOMES[row.outcome] ?? DIM;
    return [bar(row, y, row.decided_ms, row.started_ms || row.ended_ms, colour + '55'),
      ...(row.started_ms ? [bar(row, y, row.started_ms, row.ended_ms, colour)] : [])];
  });
  if (plot) {
    plot.options.scales.x.min = Math.min(...bars.map(b => b.x[0]));
    plot.options.scales.x.max = Math.max(...bars.map(b => b.x[1]));
    plot.data.datasets = [{data: bars, backgroundColor: bars.map(b => b.colour), grouped: false, barThickness: 4}];
    plot.update();
  }
  const sums = new Map();
  for (const row of rows) sums.set(row.outcome, (sums.get(row.outcome) ?? 0) + 1);
  $('timeline').querySelector('.plot').hidden = !rows.length;
  $('timeline').querySelector('figcaption').textContent = rows.length
    ? [...sums].map(([outcome, n]) => `${outcome.replaceAll('_', ' ')} ${n}`).join(' · ') + ' — pale: waiting, full: moving'
    : 'No instruction of a conductor has ended lately.';
}

// An instruction as it is drawn, with words for a tip.
function instruction(row) {
  const word = text => (text ?? '').replaceAll('_', ' ');
  return {...row, title: `${row.kind} for ${word(row.reason)}: ${word(row.outcome)}`,
    label: [`${bytes(row.bytes)} from ${word(row.tier)} to ${row.to}`, row.started_us && `waited ${millis(row.started_us / 1e3)}`,
      `ended after ${millis(row.finished_us / 1e3)}`, `wanted within ${millis(row.deadline_us / 1e3)}`].filter(Boolean).join(', ')};
}

// ---- cluster ----

const moodOf = {serving: 'good', draining: 'warn', drained: 'warn', suspect: 'warn', dead: 'bad'};

function fill(label, used, capacity) {
  const share = capacity ? 100 * used / capacity : 0, track = make('i', null, {'data-mood': share > 95 ? 'warn' : null});
  track.style.width = `${Math.min(100, share)}%`;
  return make('div', null, {class: 'bar'}, make('span', label), make('span', null, {class: 'track'}, track),
    make('span', capacity ? `${bytes(used)} of ${bytes(capacity)}` : bytes(used)));
}

function nodeCard(node) {
  const where = [node.rack && `rack ${node.rack}`, node.zone && `zone ${node.zone}`].filter(Boolean).join(', ');
  const tiers = (node.tiers ?? []).filter(tier => tier.tier !== 'dram');
  return make('article', null, {class: 'card', 'data-node': node.name},
    make('h3', null, {}, make('span', node.name), make('span', node.state, {class: 'pill', 'data-mood': moodOf[node.state] ?? 'warn'})),
    fill('memory', node.used, node.capacity),
    ...tiers.map(tier => tier.aside ? make('p', `${tier.tier} stepped aside: ${tier.why ?? ''}`) : fill(tier.tier, tier.used ?? 0, tier.capacity ?? 0)),
    make('p', [node.address, where, `heard of ${Math.round(node.age_ms ?? 0)} ms ago`].filter(Boolean).join(' · ')));
}

function table(id, head, rows) {
  const element = $(id);
  element.replaceChildren();
  if (!rows.length) return;
  element.append(make('tr', null, {}, ...head.map(word => make('th', word, {scope: 'col'}))),
    ...rows.map(row => make('tr', null, {}, ...row.map(cell => make('td', cell)))));
}

function cluster() {
  const {last, counters} = state;
  $('nodes').replaceChildren(...last.nodes.length ? last.nodes.map(nodeCard) : [make('p', 'No node has registered.', {class: 'none'})]);
  const of = (name, tier) => counters.sum(name, {tier});
  table('tiers', ['Tier', 'Blocks', 'Bytes of values', 'Space used', 'Read', 'Written', 'Reclaims'],
    ['ssd', 'object'].filter(tier => of('node_tier_works', tier)).map(tier => [tier, count(of('node_tier_blocks', tier)),
      bytes(of('node_tier_live_bytes', tier)), bytes(of('node_tier_used_bytes', tier)), bytes(of('node_tier_read_bytes', tier)),
      bytes(of('node_tier_written_bytes', tier)), count(of('node_tier_reclaims', tier))]));
  $('links-count').textContent = `(${state.links.length})`;
  table('links', ['Process', 'Peer', 'Path', 'Comes', 'Goes', 'Busy'], state.links.map(link =>
    [link.where, link.peer, link.path, `${bytes(link.received)}/s`, `${bytes(link.sent)}/s`, percent(100 * link.busy)]));
  $('processes-count').textContent = `(${last.processes.filter(p => p.up).length} of ${last.processes.length} answer)`;
  table('processes', ['Process', 'Does', 'Answers'], last.processes.map(p =>
    [p.name ? `${p.name} (${p.where})` : p.where, p.up ? roles(p.series) : '', p.up ? 'yes' : p.why || 'no']));
}

function tile(label, value, mood) {
  return make('div', null, {class: 'tile', 'data-mood': mood}, make('b', value), make('span', label));
}

function summary() {
  const {last, counters} = state;
  const point = field => state.points.findLast(p => p[field] && p.at > last.at_ms - 60e3)?.[field];
  const hits = point('hits'), ttft = point('ttft');
  const missed = hits && (hits[SOURCES.miss] ?? hits[TIERS.miss] ?? 0);
  const up = last.nodes.filter(node => node.state === 'serving').length;
  const wrong = counters.sum('engine_wrong_bytes_total');
  const used = last.nodes.reduce((sum, node) => sum + node.used, 0), room = last.nodes.reduce((sum, node) => sum + node.capacity, 0);
  $('summary').replaceChildren(
    tile('nodes serve', `${up} of ${last.nodes.length}`, up === last.nodes.length ? 'good' : 'bad'),
    tile('memory in use', room ? percent(100 * used / room) : '–'),
    tile('of prompts not computed', hits ? percent(100 - missed) : '–'),
    tile('to the first token, P50', ttft ? millis(ttft.P50) : '–'),
    tile('to the first token, P99', ttft ? millis(ttft.P99) : '–'),
    tile('bytes compared', bytes(counters.sum('engine_verified_bytes_total'))),
    tile('of those wrong', count(wrong), wrong ? 'bad' : 'good'));
}

function eventList() {
  const shown = state.events.filter(event => state.level === 'info' || event.level !== 'info').slice(-EVENTS_MAX).reverse();
  $('events').replaceChildren(...shown.length ? shown.map(event => make('li', null, {'data-level': event.level},
    make('time', clock(event.at_ms), {datetime: new Date(event.at_ms).toISOString()}),
    make('div', null, {}, make('p', event.text + (event.times > 1 ? ` (${event.times} times)` : '')), make('small', event.where))))
    : [make('li', null, {}, make('span', ''), make('p', 'Nothing.', {class: 'none'}))]);
}

let drawing = false;
function draw() {
  if (drawing || state.paused || !state.last) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    summary();
    cluster();
    lines('hits', 'hits', {stacked: true, unit: '%', words: percent, max: 100});
    lines('ttft', 'ttft', {unit: 'ms', words: millis});
    lines('flow', 'flow', {unit: 'MB/s', words: n => `${n < 10 ? n.toFixed(1) : Math.round(n)} MB/s`});
    lines('work', 'work', {unit: 'requests', words: n => Number.isInteger(n) ? count(n) : n.toFixed(1)});
    lines('refused', 'refused', {stacked: true, counted: true, unit: 'per second', words: perSecond});
    lines('failed', 'failed', {stacked: true, counted: true, unit: 'per second', words: perSecond});
    arrivals();
    timeline();
    eventList();
  });
}

// ---- the stream -----------------------------------------------------------------------------------

// Equal events that come one after another are one, with how many there were.
function addEvents(events) {
  for (const event of events) {
    const twin = state.events.findLast(e => e.text === event.text && e.where === event.where && event.at_ms - e.at_ms < 60e3);
    if (twin) twin.times = (twin.times ?? 1) + 1;
    else state.events.push(event);
  }
  state.events = state.events.slice(-2 * EVENTS_MAX);
}

// A node that comes, goes or changes is an event, too.
function nodeEvents(sample) {
  const events = [], now = new Map(sample.nodes.map(node => [node.name, node.state]));
  const say = (name, level, text) => events.push({at_ms: sample.at_ms, level, where: name, text});
  for (const [name, what] of now)
    if (state.nodeStates.size && state.nodeStates.get(name) !== what)
      say(name, what === 'serving' ? 'info' : 'warn', what === 'serving' ? 'the node serves' : `the node is ${what}`);
  for (const name of state.nodeStates.keys()) if (!now.has(name)) say(name, 'warn', 'the node is gone: its lease ran out, or it has left');
  state.nodeStates = now;
  return events;
}

function take(sample) {
  if (sample.number <= state.number && state.last && sample.at_ms <= state.last.at_ms) return;
  const counters = new Counters(sample, state.counters);
  state.points.push(derive(sample, counters, state.counters));
  state.points = state.points.slice(-KEPT_MAX);
  state.links = links(counters, state.counters) ?? state.links;
  addEvents([...sample.events, ...failures(sample, counters, state.counters), ...nodeEvents(sample)]);
  state.instructions = [...state.instructions, ...sample.instructions.map(instruction)].slice(-INSTRUCTIONS_MAX);
  Object.assign(state, {last: sample, counters, number: sample.number});
  draw();
}

function say(what, text) {
  $('state').dataset.state = what;
  $('state').textContent = text;
}

function listen() {
  const stream = new EventSource('v1/cluster/stream');
  stream.onmessage = message => {
    take(JSON.parse(message.data));
    say('live', `live, ${clock(state.last.at_ms)}`);
  };
  stream.onerror = () => {
    say('lost', 'no connection to the port; trying again');
    if (stream.readyState === EventSource.CLOSED) { // It was refused: the browser does not try again by itself.
      fetch('v1/cluster').then(answer => answer.ok ? null : answer.json())
        .then(why => why && say('lost', why.text)).catch(() => {});
      setTimeout(listen, 5000);
    }
  };
}

// One button of a group is the pressed one.
function choose(id, then) {
  $(id).addEventListener('click', event => {
    const button = event.target.closest('button');
    if (!button) return;
    for (const other of $(id).querySelectorAll('button')) other.setAttribute('aria-pressed', other === button);
    then(button.dataset);
    draw();
  });
}

const THEMES = ['system', 'light', 'dark'];
function theme(word) {
  $('theme').textContent = `Theme: ${word}`;
  if (word === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = word;
  try { localStorage.setItem('theme', word); } catch { /* Nothing is remembered then. */ }
  repaint();
}
function repaint() { // Colours are read when a chart is made.
  for (const plot of charts.values()) plot.destroy();
  charts.clear();
  draw();
}

choose('span', data => { state.minutes = +data.minutes; });
choose('level', data => { state.level = data.level; });
$('pause').addEventListener('click', () => {
  state.paused = !state.paused;
  $('pause').setAttribute('aria-pressed', state.paused);
  $('pause').textContent = state.paused ? 'Go on' : 'Pause';
  draw();
});
$('theme').addEventListener('click', () => {
  const word = $('theme').textContent.split(' ').at(-1);
  theme(THEMES[(THEMES.indexOf(word) + 1) % THEMES.length]);
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
let remembered = 'system';
try { remembered = localStorage.getItem('theme') ?? 'system'; } catch { /* As it is. */ }
theme(THEMES.includes(remembered) ? remembered : 'system');
if (typeof Chart === 'undefined')
  for (const plot of document.querySelectorAll('.plot')) plot.textContent = 'This program was built without Chart.js (libjs-chart.js): figures alone.';
listen();
