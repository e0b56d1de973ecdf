# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for engines: servers of the OpenAI kind that keep blocks in a store, as vLLM's
connector does: a prompt is cut into blocks of words, each named by the hash of all up to it.

    with Engine(directory, seed="0") as a, Engine(directory, seed="1") as b:
        run("check", "engine", a.url, b.url, ...)
"""
import concurrent.futures
import hashlib
import http.server
import json
import subprocess
import threading

from yuebing import DEADLINE_S, PROGRAM, environment


class Engine:
    """`puts` and `gets` are what its connector does; the rest is how it names blocks."""

    def __init__(self, directory, seed="0", model="toy", block=16, rank=0, puts=True, gets=True,
                 prefix="", value=2000, answer="fine", refuses=False, hash_name="sha256"):
        self.directory, self.seed, self.block = directory, seed, block
        self.name = f"{prefix}{model}@tp_rank:{rank}@pcp0@dcp0@pp_rank:0@group:0"
        self.puts, self.gets, self.value = puts, gets, value
        self.answer, self.refuses, self.hash_name = answer, refuses, hash_name
        self.hits = 0
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def reply(self, code, kind, body):
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.reply(200, "application/json",
                           json.dumps({"data": [{"id": "toy"}]}).encode())

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if engine.refuses:
                    self.reply(400, "application/json", b'{"error": {"message": "too long"}}')
                    return
                engine.prefill(asked["prompt"])
                events = [{"choices": [{"text": ""}]}]
                events += [{"choices": [{"text": c}]} for c in engine.answer]
                events += [{"choices": [],
                            "usage": {"prompt_tokens": len(asked["prompt"].split())}}]
                lines = [json.dumps(e) for e in events] + ["[DONE]"]
                self.reply(200, "text/event-stream",
                           "".join(f"data: {line}\n\n" for line in lines).encode())

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def keys(self, prompt):
        words, chain = prompt.split(), self.seed.encode()
        for end in range(self.block, len(words) + 1, self.block):
            chain = hashlib.new(self.hash_name,
                                chain + " ".join(words[end - self.block:end]).encode()).digest()
            yield f"{self.name}@{chain.hex()}"

    def command(self, *words, data=b""):
        return subprocess.run([PROGRAM, *words, "--directory", self.directory], input=data,
                              capture_output=True, timeout=DEADLINE_S, env=environment(),
                              check=False).returncode == 0

    def prefill(self, prompt):
        """Load what is there, from the beginning on, and put the rest."""
        keys = list(self.keys(prompt))
        there = 0
        while self.gets and there < len(keys) and self.command("get", keys[there], "-"):
            there += 1
        self.hits += there
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for key in keys[there:] if self.puts else []:
                pool.submit(self.command, "put", key, "-",
                            data=key.encode() * (self.value // len(key)))
