# SPDX-License-Identifier: Apache-2.0
"""A hit rate of 0 % says why: keyspaces, check engine and engine-config, with engines that stand in
for real ones."""
import json
import os
import shutil
import subprocess

from standin import Engine
from yuebing import (DEADLINE_S, PROGRAM, Serve, Skipped, case, environment, expect, folder, main,
                     run)

WORDS = 48


def store():
    return Serve("--memory", "16m", command="serve")


def check(server, a, b, *words, code=0):
    done = run("check", "engine", a.url, b.url, "--json", "--directory",
               server.ready["directory"], "--words", str(WORDS), "--settle-ms", "600", *words,
               timeout=6 * DEADLINE_S)
    if "libcurl" in done.err:
        raise Skipped(done.err.strip())
    expect(done.code == code, f"{done.code}: {done.out} {done.err}")
    return done.json() if done.out else done.err


def put(server, *keys, bytes_=100):
    for key in keys:
        subprocess.run([PROGRAM, "put", key, "-", "--directory", server.ready["directory"]],
                       input=b"x" * bytes_, check=True, capture_output=True, env=environment())


def keyspaces(server, *words, code=0):
    done = run("keyspaces", "--json", "--directory", server.ready["directory"], *words)
    expect(done.code == code, f"{done.code}: {done.err}")
    return done.json()


@case("of two engines that agree, the second reads what the first put, and nothing else is wrong")
def _():
    with store() as server:
        where = server.ready["directory"]
        with Engine(where) as a, Engine(where) as b:
            told = check(server, a, b)
        expect(told["cause"] is None and told["outputs_equal"], str(told))
        expect(told["stored"] == told["read"] == WORDS // 16 == b.hits, str(told))
        expect(told["put_by_b"] == 0, str(told))
        place, = told["places"]
        expect(place["tier"] == "dram" and place["blocks"] == told["read"], str(told))
        expect(all(told[who]["ttft_ms"] > 0 for who in ("a", "b", "b_fresh")), str(told))
        expect(keyspaces(server, "--strict")["warnings"] == [], "keyspaces")


@case("zero hits: each cause is told apart, with its remedy")
def _():
    rows = [
        ("NOTHING", {"puts": False}, {}, "engine-config"),
        ("UNREAD", {}, {"puts": False, "gets": False}, "kv_role"),
        ("HASHES", {}, {"seed": "random"}, "PYTHONHASHSEED=0"),
        ("NAMES", {}, {"model": "other"}, "model path"),
        ("NAMES", {}, {"prefix": "mine@"}, "prefix"),
        ("RANKS", {}, {"rank": 1}, "parallel sizes"),
        ("CUTS", {}, {"block": 32}, "--block-size"),
        ("LENGTHS", {}, {"hash_name": "md5"}, "--prefix-caching-hash-algo"),
    ]
    with store() as server:
        where = server.ready["directory"]
        for kind, one, other, remedy in rows:
            with Engine(where, **one) as a, Engine(where, **other) as b:
                told = check(server, a, b, code=1)
            expect(told["read"] == 0 and told["cause"]["kind"] == kind, f"{kind}: {told}")
            expect(remedy in told["cause"]["remedy"], f"{kind}: {told}")


@case("hits with another answer are no success, and a refusal is told in the server's words")
def _():
    with store() as server:
        where = server.ready["directory"]
        with Engine(where) as a, Engine(where, answer="else") as b:
            told = check(server, a, b, code=1)
            expect(told["read"] == told["stored"] > 0 and not told["outputs_equal"], str(told))
        with Engine(where) as a, Engine(where, refuses=True) as b:
            expect("too long" in check(server, a, b, code=1), "its words")


@case("what cannot be a check is refused")
def _():
    expect(run("check").code == 2, "nothing")
    expect(run("check", "engine", "http://a", "http://a").code == 2, "the same one")
    expect(run("check", "engine", "a", "b").code == 2, "no addresses")
    done = run("check", "engine", "http://127.0.0.1:1", "http://127.0.0.1:2", "--directory",
               "127.0.0.1:1", "--timeout-ms", "300")
    expect(done.code == 1 and done.err != "", str(done.err))


@case("keyspaces: kin that never meet, sizes and algorithms that are mixed")
def _():
    with store() as server:
        name = "m@tp_rank:{}@pcp0@dcp0@pp_rank:0@group:0@{:064x}"
        put(server, *[name.format(0, i) for i in range(9)], "anything else", "b")
        told = keyspaces(server, "--strict")
        families = {f["family"]: f for f in told["families"]}
        family = families["m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@*"]
        expect(family["engine"] == "vllm" and family["model"] == "m" and family["blocks"] == 9,
               str(family))
        expect(families["*"]["blocks"] == 2, str(told))
        put(server, *[name.format(1, i) for i in range(9)])
        expect(keyspaces(server, "--strict")["warnings"] == [], "equals that meet")
        put(server, *[name.format(2, 1000 + i) for i in range(9)])
        warning, = keyspaces(server, "--strict", code=1)["warnings"]
        expect(warning["kind"] == "APART" and "PYTHONHASHSEED" in warning["remedy"], str(warning))
        put(server, *[name.format(0, 500 + i) for i in range(9)], bytes_=300)
        kinds = {w["kind"] for w in keyspaces(server)["warnings"]}
        expect(kinds == {"APART", "SIZES"}, str(kinds))
        put(server, "m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@abcdef")
        kinds = {w["kind"] for w in keyspaces(server)["warnings"]}
        expect(kinds == {"APART", "SIZES", "HASHES"}, str(kinds))
        text = run("keyspaces", "--directory", server.ready["directory"])
        expect("warning: " in text.out and "remedy: " in text.out and "tp_rank:2" in text.out,
               text.out)


def config(*words):
    done = run("engine-config", *words, "--json")
    expect(done.code == 0, done.err)
    return done.json()


@case("engine-config: the shell text does what the JSON says, addresses filled in")
def _():
    for engine in ("vllm", "sglang", "lmcache"):
        with folder() as path:
            words = (engine, "--directory", "10.1.2.3:14700", "--host", "10.1.2.4",
                     "--secret-file", "/x/a b", "--file", f"{path}/it.json")
            told = config(*words)
            text = run("engine-config", *words)
            expect(text.code == 0, text.err)
            script = text.out.replace("vllm serve MODEL", "printf '%s\\n'").replace(
                "python -m sglang.launch_server --model-path MODEL", "printf '%s\\n'")
            shell = shutil.which("sh")
            done = subprocess.run([shell, "-ec", script + "env\n"], capture_output=True, text=True,
                                  check=True, env={"PATH": os.environ["PATH"]})
            file, = told["files"]
            with open(file["path"], encoding="utf-8") as written:
                expect(json.load(written) == file["content"], "the file")
            for name, value in told["environment"].items():
                expect(f"{name}={value}\n" in done.stdout, f"{name}: {done.stdout}")
            expect(done.stdout.split("\n")[:len(told["flags"])] == told["flags"], done.stdout)
            expect(told["environment"]["YUEBING_SECRET_FILE"] == "/x/a b", str(told))
            expect("10.1.2.3:14700" in json.dumps(file) and "10.1.2.4" in json.dumps(told),
                   str(told))
    expect(config("vllm")["environment"]["PYTHONHASHSEED"] == "0", "the seed")
    expect("YUEBING_SECRET_FILE" not in config("vllm")["environment"], "no secret")
    content = config("vllm", "--segment", "0")["files"][0]["content"]
    expect(content["mode"] == "standalone-store" and content["global_segment_size"] == 0,
           str(content))
    expect(config("sglang", "--for", "transfer")["files"] == [], "no file for transfers")
    expect(run("engine-config").code == 2 and run("engine-config", "tgi").code == 2, "which")
    expect(run("engine-config", "lmcache", "--for", "transfer").code == 2, "not of LMCache")
    expect(run("engine-config", "vllm", "--segment", "x").code == 2, "a number")


main()
