# SPDX-License-Identifier: Apache-2.0
"""The dashboard of a real cluster: a page in Chromium that a hand clicks through, and its stream as
listeners meet it that are many, slow, or there when the port closes."""
import http.client
import json
import socket
import time

from browser import Page
from engine_process import ask, engine, prompt, settled
from yuebing import DEADLINE_S, Serve, case, expect, main, run, split, until

LISTENERS_MAX = 16  # YB_DASHBOARD_LISTENERS_MAX
LIVE = "document.querySelector('#state').dataset.state == 'live'"


def text(selector):
    return f"document.querySelector({json.dumps(selector)}).innerText"


def get(address, path):
    connection = http.client.HTTPConnection(address, timeout=2 * DEADLINE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def listen(address):
    """Ask for the stream and leave it open; returns the socket and the status line."""
    stream = socket.create_connection(split(address), timeout=2 * DEADLINE_S)
    stream.sendall(b"GET /v1/cluster/stream HTTP/1.1\r\nHost: x\r\n\r\n")
    return stream, stream.recv(15)


def serve(*words):
    return Serve("--memory", "64m", "--http", "127.0.0.1:0", *words, command="serve")


def post(address, path, body):
    connection = http.client.HTTPConnection(address, timeout=2 * DEADLINE_S)
    try:
        connection.request("POST", path, json.dumps(body))
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def what_conductors_do(page, store, conductor):
    """A block is copied to whichever node has it not, and a question is refused."""
    key = "sixteen-bytes-of"
    done = run("put", key, __file__, "--directory", store.ready["directory"])
    expect(done.code == 0, done.err)
    address = conductor.ready["http"]
    until(lambda: {post(address, "/v1/move", {"hashes": [key.encode().hex()], "kind": "replicate",
                                              "to": node["name"]})
                   for node in store.ready["nodes"]} == {200}, "both are told", 2 * DEADLINE_S)
    page.wait(f"/^memory: \\d+, P50 /.test({text('#arrivals figcaption')})")
    page.wait("charts.get('arrivals').data.datasets[0].data.some(at => at.y > 0)")
    expect(post(address, "/v1/schedule", {"tokens": "x"}) == 400, "it is refused")
    page.wait(f"{text('#refused figcaption')}.includes('call refused: 400 × 1')")
    page.wait("charts.get('refused').data.datasets.some(set => set.data.some(at => at.y > 0))")
    # What fails is not to be had by asking: a sample that says so.
    page.value("""(() => {
        const sample = structuredClone(state.last);
        sample.number++;
        sample.at_ms++;
        sample.processes[0].series['node_loads_failed_total{status="IO"}'] = 3;
        take(sample);
    })()""")
    page.wait(f"{text('#failed figcaption')}.includes('node loads failed: IO × 3')")
    # What was counted while a busy process missed a sample is told with the next one.
    grown = page.value("""(() => {
        const [first, missed, later] = [0, 1, 2].map(() => structuredClone(state.last));
        Object.assign(first.processes[0], {up: true, series: {node_loads_failed_total: 4}});
        Object.assign(missed.processes[0], {up: false, why: 'busy', series: {}});
        Object.assign(later.processes[0], {up: true, series: {node_loads_failed_total: 7}});
        const before = new Counters(missed, new Counters(first));
        return new Counters(later, before).grown(before, named('node_loads_failed_total'));
    })()""")
    expect(grown == 3, f"{grown} of three failures")
    # What is handed over is no hit: another engine has computed it, and said so.
    hits = page.value("""(() => {
        const [before, after] = [0, 1].map(() => structuredClone(state.last));
        const counted = (engine, device, miss) => ({up: true, series: {engine_kv_blocks: 1,
            'engine_source_tokens_total{tier="engine"}': engine,
            'engine_source_tokens_total{tier="device"}': device,
            'engine_source_tokens_total{tier="miss"}': miss}});
        Object.assign(before.processes[0], counted(0, 0, 0));
        Object.assign(after.processes[0], counted(100, 25, 75));
        after.at_ms += 1000;
        const old = new Counters(before);
        return derive(after, new Counters(after, old), old).hits;
    })()""")
    expect({word: share for word, share in hits.items() if share} ==
           {"own memory": 25, "computed": 75}, f"{hits}")


def click_through(page, first):
    page.wait(LIVE)
    page.wait("document.querySelectorAll('[data-node]').length == 2")
    expect("2 of 2" in page.value(text("#summary")), page.value(text("#summary")))
    page.click("#processes-box summary")
    for word in ("conductor", "directory, node", "engine", "first"):
        page.wait(f"{text('#processes')}.includes('{word}')")
    page.click("#links-box summary")
    page.wait(f"{text('#links')}.includes('admin@127.0.0.1') && {text('#links')}.includes('tcp')")
    # An engine computes a prompt, and gives it again.
    page.wait("state.counters.sum('engine_kv_blocks') > 0")
    ask(first, prompt(1, 640))
    settled(first)
    ask(first, prompt(1, 640))
    page.wait(f"/own memory \\d/.test({text('#hits figcaption')})")
    page.wait("charts.get('hits').data.datasets.some(set => set.data.some(at => at.y > 0))")
    # Buttons do what they say.
    page.click("#span [data-minutes='1']")
    page.wait("document.querySelector('#span [aria-pressed=true]').dataset.minutes == '1'")
    page.click("#level [data-level='info']")
    page.wait(f"{text('#events')}.includes('a node registers')")
    page.click("#pause")
    expect(page.value(text("#pause")) == "Go on", "it pauses")
    page.click("#pause")
    before = page.value("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    page.click("#theme")
    page.wait("document.querySelector('#theme').innerText == 'Theme: dark'")
    page.wait(f"getComputedStyle(document.body).backgroundColor != '{before}'")
    expect(not page.complaints, f"{page.complaints}")
    # An engine that is gone is said in words.
    first.kill()
    page.click("#level [data-level='warn']")
    page.wait(f"{text('#events')}.includes('does not answer')")


@case("a page shows the nodes, what engines reused, and what went wrong, in every scheme and width")
def _():
    with serve("--nodes", "2") as store, \
            Serve("--http", "127.0.0.1:0", "--directory", store.address, "--http-watch",
                  store.ready["http"], command="conductor") as conductor, \
            Page(f"http://{conductor.ready['http']}/") as page:
        first = engine(store.address, "--name", "first", "--conductor",
                       f"http://{conductor.ready['http']}").begin()
        try:
            what_conductors_do(page, store, conductor)
            click_through(page, first)
            # What happened in one interval alone is a dot: there is no line to see.
            for row, at, radius in (("[null, 1, null]", 1, 3), ("[1, 1]", 0, 0), ("[1]", 0, 3)):
                page.wait(f"charts.get('hits').data.datasets[0].pointRadius({{dataIndex: {at}, "
                          f"dataset: {{data: {row}.map(y => ({{y}}))}}}}) === {radius}")
        finally:
            first.kill()


@case("on a phone nothing is wider than the screen, and a dark scheme is dark")
def _():
    with serve() as store, \
            Page(f"http://{store.ready['http']}/", width=390, height=800, dark=True) as page:
        page.wait(LIVE)
        page.wait("document.querySelectorAll('[data-node]').length == 1")
        expect(page.value("document.documentElement.scrollWidth") <= 390, "it is not wider")
        colour = page.value("getComputedStyle(document.body).backgroundColor")
        expect(max(json.loads(colour.replace("rgb(", "[").replace(")", "]"))) < 64, colour)
        expect(not page.complaints, f"{page.complaints}")


@case("a page may load nothing from elsewhere, and what it is made of is all in the program")
def _():
    with serve() as store:
        for path, kind in (("/", "text/html"), ("/dashboard.css", "text/css"),
                           ("/dashboard.js", "text/javascript"), ("/chart.js", "text/javascript")):
            answer, body = get(store.ready["http"], path)
            expect(answer.status == 200 and answer.getheader("Content-Type").startswith(kind), path)
            expect(answer.getheader("X-Content-Type-Options") == "nosniff", path)
            if path != "/chart.js":
                expect(b"http://" not in body and b"https://" not in body, path)
        policy = get(store.ready["http"], "/")[0].getheader("Content-Security-Policy")
        expect("default-src 'none'" in policy and "unsafe" not in policy, policy)


@case("listeners are counted: one too many is told so, and gets a place that becomes free")
def _():
    with serve() as store:
        streams = []
        for _ in range(LISTENERS_MAX):
            stream, status = listen(store.ready["http"])
            expect(status == b"HTTP/1.1 200 OK", f"{status}")
            streams.append(stream)
        answer, body = get(store.ready["http"], "/v1/cluster/stream")
        expect(answer.status == 503 and json.loads(body)["status"] == "AGAIN", f"{body}")
        expect(answer.getheader("Retry-After") is not None, "it says when")
        streams.pop().close()

        def again():
            stream, status = listen(store.ready["http"])
            fine = status == b"HTTP/1.1 200 OK"
            if fine:
                streams.append(stream)
            else:
                stream.close()
            return fine
        until(again, "the place is free", 2 * DEADLINE_S)
        for stream in streams:
            stream.close()


@case("a port with listeners closes at once")
def _():
    store = serve().begin()
    streams = [listen(store.ready["http"])[0] for _ in range(3)]
    expect(store.stop() == 0, f"{store.log[-5:]}")
    for stream in streams:
        end = time.monotonic() + DEADLINE_S
        while stream.recv(65536):
            expect(time.monotonic() < end, "the stream ends")
        stream.close()


main()
