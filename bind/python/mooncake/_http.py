# SPDX-License-Identifier: Apache-2.0
"""What enable_client_http_server opens: /health and /metrics of one store."""
import http.server
import logging
import os
import threading

_log = logging.getLogger("mooncake.store")

_HELP = {
    "puts": "Values that were put.",
    "put_bytes": "Their bytes.",
    "gets": "Values that were asked for.",
    "hits": "Of them, those that were got.",
    "get_bytes": "Bytes that were got.",
    "exists": "Keys whose existence was asked.",
    "calls": "Messages that were sent.",
    "retries": "Of them, those that were sent again.",
}


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = 10  # Of a connection that says nothing.

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path == "/health":
            health = self.server.store.health_check()
            text = {0: "OK", 1: "not set up", 2: "the master does not answer"}[health]
            self._answer(200 if health == 0 else 503, text + "\n")
        elif path == "/metrics":
            self._answer(200, _metrics(self.server.store))
        else:
            self._answer(404, "not found: /health and /metrics are here\n")

    def _answer(self, code, text):
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def _metrics(store):
    lines = []
    for name, value in store._counters().items():
        full = f"yuebing_client_{name}_total"
        lines += [f"# HELP {full} {_HELP[name]}", f"# TYPE {full} counter", f"{full} {value}"]
    healthy = int(store.health_check() == 0)
    lines += ["# HELP yuebing_client_healthy Whether the master answers.",
              "# TYPE yuebing_client_healthy gauge", f"yuebing_client_healthy {healthy}"]
    return "\n".join(lines) + "\n"


class Server:
    """The port, with a thread that accepts. It only tells; nothing can be changed through it."""

    def __init__(self, store, port):
        self._server = http.server.ThreadingHTTPServer(("", port), _Handler)
        self._server.daemon_threads = True
        self._server.store = store
        self.port = self._server.server_address[1]
        self._process = os.getpid()
        threading.Thread(target=self._server.serve_forever, name="mooncake-http",
                         daemon=True).start()

    def close(self):
        server, self._server = self._server, None
        if server is not None:
            if self._process == os.getpid():  # A forked child has the port, and no thread.
                server.shutdown()
            server.server_close()


def start(store, port):
    """A Server, or None: the store works without, and the log says so."""
    try:
        return Server(store, port)
    except OSError as error:
        _log.error("client_http_port %d: %s; there is no /health and no /metrics", port, error)
        return None
