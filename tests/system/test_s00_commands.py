# SPDX-License-Identifier: Apache-2.0
"""The commands that a newcomer types first: secret, serve, ping, demo, simulate."""
import json
import os
import re
import stat

from yuebing import Serve, case, demo_folders, expect, folder, main, new_secret, ping, run


@case("a new secret is its owner's alone, never printed, and never overwritten")
def _():
    with folder() as path:
        file = path + "/secret"
        old = os.umask(0)
        try:
            done = run("secret", "new", "--out", file)
        finally:
            os.umask(old)
        expect(done.code == 0, done.err)
        expect(stat.S_IMODE(os.stat(file).st_mode) == 0o600, "others have rights on it")
        with open(file, encoding="ascii") as text:
            written = text.read()
        secret = re.search(r"^secret (\S{32,})$", written, re.M)[1]
        expect(secret not in done.out + done.err, "the secret was printed")
        again = run("secret", "new", "--out", file)
        expect(again.code == 1 and file in again.err, again.err)
        with open(file, encoding="ascii") as text:
            expect(text.read() == written, "it was overwritten")
        shown = run("secret", "new", "--out", "-")
        expect(shown.code == 0 and "\nsecret " in shown.out, shown.out)
        expect(run("secret", "new").code == 2, "without --out it has to refuse")
        os.symlink(path + "/target", path + "/link")
        expect(run("secret", "new", "--out", path + "/link").code == 1, "it followed a link")
        expect(not os.path.exists(path + "/target"), "it wrote behind a link")


@case("a derived key is for one role and tenant, and says so")
def _():
    with folder() as path:
        secret = new_secret(path + "/secret")
        words = ["secret", "derive", "--secret-file", secret, "--json"]
        done = run(*words, "--role", "client", "--tenant", "team-a", "--out", path + "/a")
        expect(done.code == 0 and done.json()["tenant"] == "team-a", done.err)
        expect(stat.S_IMODE(os.stat(path + "/a").st_mode) == 0o600, "others have rights on it")
        for bad, text in ((["--role", "king"], "king"), ([], "--role"),
                          (["--role", "node", "--tenant", "x"], "tenant")):
            done = run(*words, *bad, "--out", path + "/b")
            expect(done.code == 2 and text in done.err, f"{bad}: {done.code} {done.err}")
        os.chmod(secret, 0o644)
        done = run(*words, "--role", "node", "--out", path + "/b")
        expect(done.code == 1 and secret in done.err, done.err)
        expect(not os.path.exists(path + "/b"), "a file was left behind")


@case("a secret that others can read refuses to serve and to ping")
def _():
    with folder() as path:
        secret = new_secret(path + "/secret")
        os.chmod(secret, 0o640)
        for words in (["serve"], ["ping", "127.0.0.1:1"]):
            done = run(*words, "--secret-file", secret)
            expect(done.code == 2 and secret in done.err, f"{done.code} {done.err}")


@case("ping tells who answers, and says so if nobody does")
def _():
    with Serve() as server:
        server.wait_log("no secret")  # It does not serve openly in silence.
        found = ping(server.address, count=20).json()
        expect(found["identity"] == server.ready["identity"], str(found))
        expect(found["answered"] == 20 and found["authenticated"] is False, str(found))
        rtt = found["rtt_ns"]
        expect(0 < rtt["min"] <= rtt["p50"] <= rtt["p99"] <= rtt["max"], str(rtt))
        expect(abs(found["clock_offset_ns"]) <= found["clock_error_ns"] + 1_000_000,
               f"one machine has one clock: {found}")
        text = run("ping", server.address)
        expect(server.ready["identity"] in text.out and "5 of 5 answered" in text.out, text.out)
        address = server.address
    done = ping(address)
    expect(done.code == 1 and "REFUSED" in done.err, done.err)
    expect(json.loads(done.out)["answered"] == 0, done.out)


@case("the demo of a store verifies every byte, turns the stranger away and cleans up")
def _():
    done = run("demo", "--store", timeout=100)
    expect(done.code == 0, done.err)
    last = done.out.splitlines()[-1]
    match = re.fullmatch(r"demo: (\d+) blocks read, (\d+) bytes verified, 0 wrong", last)
    expect(match and int(match[1]) > 200 and int(match[2]) > 1 << 20, last)
    found = run("demo", "--store", "--json", "--tls", "on", timeout=100)
    expect(found.code == 0, found.err)
    expect(not demo_folders(found.pid), "a folder was left behind")
    found = found.json()
    expect(found["wrong"] == 0 and found["stranger"] == "DENIED", str(found))
    put, *gets = found["steps"]
    expect(put["bytes"] == gets[0]["bytes"] and gets[0]["not_found"] == 0, str(found))
    expect(sum(row["bytes"] for row in gets) == found["bytes_verified"], str(found))
    expect(found["repaired"] > 0 and gets[2]["not_found"] == found["lost"], str(found))
    expect(not demo_folders(done.pid), "a folder was left behind")


MODELS = """; A model and devices of one's own.
[model mine]
layers = 48
kv_bytes = 196608
token_gflops = 26.2
pair_flops = 4.92e5
weight_gb = 29.5
step_gb = 29.5
[gpu ours]
tflops = 500
memory_tb_s = 2.4
memory_gb = 96
host_gb_s = 32
[cost mine on 4 ours]
prefill_token_us = 90
step_base_ms = 20
"""


@case("a file of models and devices is known to simulate, advise and the engine")
def _():
    with folder() as path:
        made = run("trace", "gen", "--like", "toolagent", "--requests", "50", "--seed", "1")
        for name, text in (("trace", made.out), ("models", MODELS), ("bad", "[model x]\nlayer=1\n"),
                           ("little", "[model mine]\nlayers = 2\n")):
            with open(path + "/" + name, "w", encoding="ascii") as file:
                file.write(text)
        asked = ["--model", "mine", "--gpu", "4xours"]
        models, trace = ["--catalog", path + "/models"], path + "/trace"
        commands = (["simulate", trace], ["simulate", trace, "--routing", "ready"],
                    ["advise", "--trace", trace])
        for words in commands:
            done = run(*words, *asked, *models, "--json")
            expect(done.code == 0, done.err)
            done = run(*words, *asked)
            expect(done.code == 2 and "no cost of mine on 4xours" in done.err, done.err)
            done = run(*words, "--catalog", path + "/bad")
            expect(done.code == 2 and f"{path}/bad:2: " in done.err, done.err)
            done = run(*words, "--catalog", path + "/little", "--model", "mine")
            expect(done.code == 2 and "is not enough: kv_bytes" in done.err, done.err)
            done = run(*words, "--catalog", path + "/none")
            expect(done.code == 2 and f"cannot read {path}/none" in done.err, done.err)
            done = run(*words, "--gpu", "1xl20")
            expect(done.code == 2 and "does not fit on 1xl20" in done.err, done.err)
        told = run("advise", "--trace", trace, *asked, *models, "--json").json()
        computed = told["prefixes"][0]["compute_s"]
        expect(abs(computed / (told["prefixes"][0]["tokens"] * 90e-6) - 1) < 1e-6, str(told))
        done = run("engine", *models, "--model", "mine", "--gpu", "abacus")
        expect(done.code == 2 and " mine" in done.err and " ours" in done.err, done.err)


@case("policies of routing stand beside each other on a short trace, the same each time")
def _():
    with folder() as path:
        made = run("trace", "gen", "--like", "toolagent", "--requests", "300", "--seed", "1")
        expect(made.code == 0, made.err)
        with open(path + "/trace", "w", encoding="ascii") as file:
            file.write(made.out)
        words = ["simulate", path + "/trace", "--instances", "4", "--load", "1,4", "--json"]
        done = run(*words, "--routing", "ready,random")
        expect(done.code == 0, done.err)
        rows = done.json()["rows"]
        expect([(row["routing"], row["load"]) for row in rows] ==
               [("ready", 1), ("random", 1), ("ready", 4), ("random", 4)], str(rows))
        figures = ("ttft_mean_s", "ttft_p50_s", "ttft_p95_s", "ttft_p99_s", "tpot_mean_ms",
                   "tpot_p99_ms", "hit", "peer")
        for row in rows:
            expect(set(row) == {"routing", "load", *figures}, str(row))
            expect(row["ttft_p50_s"] <= row["ttft_p95_s"] <= row["ttft_p99_s"], str(row))
            expect(0 < row["hit"] < 1 and 0 <= row["peer"] <= row["hit"], str(row))
        expect(rows[0]["ttft_mean_s"] < rows[1]["ttft_mean_s"], f"no better than dice: {rows}")
        expect(rows[1]["ttft_mean_s"] < rows[3]["ttft_mean_s"], f"load costs nothing: {rows}")
        expect(run(*words, "--routing", "ready,random").out == done.out, "another answer")
        done = run(*words, "--routing", "dice")
        expect(done.code == 2 and "dice" in done.err and "mooncake" in done.err, done.err)


main()
