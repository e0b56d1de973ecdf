# SPDX-License-Identifier: Apache-2.0
"""What others' tools get: spans in the OpenTelemetry protocol, metrics that promtool approves of.

The decoder is written here, by the protocol's text: it knows each member that a message may have,
and its type in JSON, and takes nothing else. Where the Python package opentelemetry-proto is
installed, the protocol's own messages are asked, too.
"""
import base64
import collections
import copy
import http.client
import http.server
import json
import re
import shutil
import subprocess
import threading

from yuebing import Serve, Skipped, case, expect, folder, main, run, until

SMALL = ("--time-scale", "0.002", "--block-tokens", "64", "--block-bytes", "65536", "--pool", "64")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Collector:
    """An HTTP server that keeps what it is sent; `codes` are what it answers first."""

    def __init__(self, *codes):
        self.codes = collections.deque(codes)
        self.bodies = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code = collector.codes.popleft() if collector.codes else 200
                if code == 200:
                    collector.bodies.append((self.path, self.headers["Content-Type"], body))
                self.send_response(code)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *words):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *failure):
        self.server.shutdown()
        self.server.server_close()

    def spans(self):
        return [span for _, _, body in list(self.bodies) for span in decode(body)]


def members(value, required, optional=()):
    expect(isinstance(value, dict), f"no object: {value}")
    keys = set(value)
    expect(set(required) <= keys <= set(required) | set(optional), f"members: {sorted(keys)}")


def attributes(rows):
    expect(isinstance(rows, list), f"{rows}")
    found = {}
    for row in rows:
        members(row, ("key", "value"))
        (kind, value), = row["value"].items()
        expect(isinstance(row["key"], str) and row["key"] not in found, f"{row}")
        expect(isinstance(value, str) and kind in ("stringValue", "intValue"), f"{row}")
        expect(kind == "stringValue" or re.fullmatch("0|-?[1-9][0-9]*", value), f"{row}")
        found[row["key"]] = value if kind == "stringValue" else int(value)
    return found


def text(value, pattern):
    expect(isinstance(value, str) and re.fullmatch(pattern, value), f"{value}")
    return value


def decode_span(span):
    members(span, ("traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano"),
            ("parentSpanId", "attributes", "status"))
    for name, digits in (("traceId", 32), ("spanId", 16), ("parentSpanId", 16)):
        if name in span:
            text(span[name], f"[0-9a-f]{{{digits}}}")
            expect(int(span[name], 16) != 0, f"{name} of zeros")
    times = [int(text(span[n], "[1-9][0-9]*")) for n in ("startTimeUnixNano", "endTimeUnixNano")]
    expect(times[0] <= times[1] < 1 << 64, f"{times}")
    expect(isinstance(span["kind"], int) and 1 <= span["kind"] <= 5, f"{span['kind']}")
    expect(isinstance(span["name"], str) and span["name"], f"{span}")
    members(span["status"], ("code",), ("message",))
    expect(span["status"]["code"] in (0, 1, 2), f"{span['status']}")
    return {**span, "attributes": attributes(span.get("attributes", []))}


def by_their_own_messages(message):
    """The protocol's messages take it: but for ids, which are not base64 in OTLP's JSON."""
    try:
        from google.protobuf import json_format
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
    except ImportError:
        return
    message = copy.deepcopy(message)
    for resource in message["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in ("traceId", "spanId", "parentSpanId"):
                    if name in span:
                        span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    json_format.ParseDict(message, trace_service_pb2.ExportTraceServiceRequest())


def decode(body):
    """The spans of a request, each with its resource."""
    message = json.loads(body)
    members(message, ("resourceSpans",))
    found = []
    for resource in message["resourceSpans"]:
        members(resource, ("resource", "scopeSpans"), ("schemaUrl",))
        members(resource["resource"], ("attributes",))
        who = attributes(resource["resource"]["attributes"])
        expect(who["service.name"] == "yuebing", f"{who}")
        for scope in resource["scopeSpans"]:
            members(scope, ("scope", "spans"), ("schemaUrl",))
            members(scope["scope"], ("name", "version"))
            expect(isinstance(scope["spans"], list) and scope["spans"], "spans")
            found += [{**decode_span(span), "resource": who} for span in scope["spans"]]
    by_their_own_messages(message)
    return found


def complete(engine, tokens, **headers):
    connection = http.client.HTTPConnection(engine.ready["http"], timeout=60)
    connection.request("POST", "/v1/completions",
                       json.dumps({"prompt": tokens, "max_tokens": 2}), headers)
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    expect(answer.status == 200, f"{body}")
    return body


def engine(*words):
    return Serve("--http-listen", "127.0.0.1:0", *SMALL, *words, command="engine")


@case("a collector gets the spans of a request from all processes, each once, as one tree")
def _():
    with Collector() as collector:
        with Serve("--memory", "32m", "--otlp", collector.url, command="serve") as store, \
                engine("--directory", store.address, "--otlp", collector.url,
                       "--name", "one") as one:
            complete(one, list(range(1000)), traceparent=f"00-{TRACE}-00f067aa0ba902b7-01")
        # All have been stopped: what they had left was sent.
        path, kind, _ = collector.bodies[0]
        expect((path, kind) == ("/v1/traces", "application/json"), f"{path} {kind}")
        spans = [s for s in collector.spans() if s["traceId"] == TRACE]
        ids = {s["spanId"]: s for s in spans}
        expect(len(ids) == len(spans), "each once")
        request, = [s for s in spans if s["name"] == "request"]
        expect(request["parentSpanId"] == "00f067aa0ba902b7" and request["kind"] == 2 and
               request["resource"]["yuebing.name"] == "one", f"{request}")
        stores = [s for s in spans if s["name"] == "store"]
        expect(stores and all(s["parentSpanId"] == request["spanId"] for s in stores) and
               sum(s["attributes"].get("yuebing.bytes", 0) for s in stores) == 15 * 65536,
               f"{stores}")
        served = [s for s in spans if s["name"] == "serve"]
        expect(served and all(ids[s["parentSpanId"]]["name"] == "call" for s in served),
               f"{served}")
        # The node reads what it is given out of the engine's memory: that serves, too.
        expect({s["resource"]["yuebing.kind"] for s in served} == {"serve", "engine"}, f"{served}")


@case("a busy collector is asked again; one that refuses, or is not there, costs spans only")
def _():
    with Collector(503, 429) as collector, engine("--no-store", "--otlp", collector.url) as one:
        complete(one, [1, 2, 3])
        until(lambda: any(s["name"] == "request" for s in collector.spans()),
              "it comes in the end", 60)
    with Collector(*[400] * 100) as collector, \
            engine("--no-store", "--otlp", collector.url) as one:
        complete(one, [1, 2, 3])
        until(lambda: len(collector.codes) < 100, "it was refused", 60)
        complete(one, [4, 5, 6])
        expect(one.stop() == 0, "it ends")
        expect(collector.bodies == [], "nothing was taken")
    with engine("--no-store", "--otlp", "http://127.0.0.1:1/v1/traces") as one:
        complete(one, [1, 2, 3])
        expect(one.stop() == 0, "it ends")
    done = run("engine", "--no-store", "--otlp", "collector:4318", "--http", "127.0.0.1:0", *SMALL)
    expect(done.code == 2 and "trace.otlp_url" in done.err, f"{done.code} {done.err}")


def metrics(server):
    connection = http.client.HTTPConnection(server.ready["http"], timeout=60)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    found = answer.read()
    connection.close()
    expect(answer.status == 200, f"{answer.status}")
    return found


@case("promtool finds nothing to say about any /metrics")
def _():
    if shutil.which("promtool") is None:
        raise Skipped("there is no promtool: Debian's package prometheus has it")
    port = ("--http", "127.0.0.1:0")
    with folder() as path, \
            Serve(*port, "--memory", "32m", "--data-dir", path + "/data", "--node-ssd-bytes",
                  "64m", "--object-store", f"file:{path}/object", command="serve") as store, \
            Serve(*port, command="directory") as directory, \
            Serve(*port, "--memory", "32m", "--directory", directory.address,
                  command="node") as node, \
            Serve(*port, "--directory", store.address, command="conductor") as conductor, \
            engine("--directory", store.address, "--otlp", "http://127.0.0.1:1/v1/traces") as one:
        complete(one, list(range(500)))
        for server in (store, directory, node, conductor, one):
            done = subprocess.run(["promtool", "check", "metrics"], input=metrics(server),
                                  capture_output=True, timeout=60, check=False)
            expect(done.returncode == 0 and done.stdout == done.stderr == b"", f"{done}")


if __name__ == "__main__":
    main()
