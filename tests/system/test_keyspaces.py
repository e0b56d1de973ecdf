# SPDX-License-Identifier: Apache-2.0
"""Who put what (keyspaces), and what engines are told (engine-config)."""
import concurrent.futures
import json
import os
import shutil
import subprocess

from yuebing import PROGRAM, Serve, case, environment, expect, folder, main, run


def store():
    return Serve("--memory", "16m", command="serve")


def put(server, *keys, bytes_=100):
    def one(key):
        subprocess.run([PROGRAM, "put", key, "-", "--directory", server.ready["directory"]],
                       input=b"x" * bytes_, check=True, capture_output=True, env=environment())
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, keys))


def keyspaces(server, *words, code=0):
    done = run("keyspaces", "--json", "--directory", server.ready["directory"], *words)
    expect(done.code == code, f"{done.code}: {done.err}")
    return done.json()


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
