# SPDX-License-Identifier: Apache-2.0
"""Every bench runs, checks its bytes and says what it found in JSON. No figure is judged here."""
import os
import tempfile

from yuebing import DEADLINE_S, Serve, Skipped, case, expect, main, run


def bench(*words):
    done = run("bench", *words, "--json", timeout=2 * DEADLINE_S)
    expect(done.code == 0, f"{words}: {done.code}\n{done.err}")
    return done.json()


def rows_of(found, name, fields):
    expect(found["bench"] == name and len(found["rows"]) > 0, f"{found}")
    for row in found["rows"]:
        missing = set(fields) - set(row)
        expect(not missing, f"{name}: {missing} of {row}")
    return found["rows"]


@case("bench directory names every figure, also with more blocks than writes are remembered")
def _():
    found = bench("directory", "--blocks", "2000,100000", "--outstanding", "1,20", "--keys", "64",
                  "--rounds", "1", "--run-ms", "10")
    fields = ("bytes_per_block", "publish_keys_per_s", "lookup_keys_per_s", "lookup8000_p50_us",
              "lookup8000_p99_us", "death_visible_us", "sweep_step_us_max")
    rows = rows_of(found, "directory", fields)
    expect([(row["blocks"], row["outstanding"]) for row in rows] ==
           [(2000, 1), (2000, 20), (100000, 1), (100000, 20)], f"{rows}")
    for row in rows:
        for field in fields:
            expect(row[field] > 0, f"{field} of {row}")


@case("bench directory refuses what makes no sense, and says so")
def _():
    for words, text in ((["--blocks", "10"], "1000"), (["--outstanding", "0"], "outstanding"),
                        (["--keys", "20000"], "keys"), (["--op", "read"], "transfer")):
        done = run("bench", "directory", *words)
        expect(done.code == 2 and text in done.err, f"{words}: {done.code} {done.err}")


def store_rows(path, sizes, batches, fragments, *words):
    found = bench("store", "--path", path, "--sizes", sizes, "--batch", batches, "--fragments",
                  fragments, "--rounds", "1", "--run-ms", "10", *words)
    rows = rows_of(found, "store", ("path", "op", "size", "fragments", "streams", "batch", "gbps",
                                    "ops_per_s", "ratio", "p50_us", "p99_us", "cpu_s_per_gb",
                                    "integrity"))
    for row in rows:
        expect(row["ops_per_s"] > 0 and row["p50_us"] > 0, f"{row}")
        expect(row["op"] in ("exist", "pin") or (row["gbps"] > 0 and row["ratio"] > 0), f"{row}")
    return rows


@case("bench store has rows for every operation, size, batch and number of fragments")
def _():
    rows = store_rows("tcp", "4k,64k", "1,16", "64")
    for op in ("put", "get"):
        mine = {(row["size"], row["batch"], row["fragments"]) for row in rows if row["op"] == op}
        expect(mine == {(4096, 1, 1), (4096, 16, 1), (65536, 1, 1), (65536, 16, 1),
                        (2 << 20, 16, 1), (2 << 20, 16, 64)}, f"{mine}")
    expect({row["path"] for row in rows} == {"tcp"}, f"{rows}")
    expect({row["integrity"] for row in rows} == {"none"}, f"{rows}")
    rows = store_rows("auto", "64k", "16", "1")
    expect({row["op"] for row in rows} >= {"put", "get", "exist"}, f"{rows}")
    rows = store_rows("tcp", "4k", "16", "1", "--node-verify")
    expect({row["integrity"] for row in rows} == {"node"}, f"{rows}")


@case("bench store refuses what makes no sense, and says so")
def _():
    for words, text in ((["--path", "smoke"], "smoke"), (["--sizes", "7"], "sizes"),
                        (["--batch", "0"], "batch"), (["--streams", "1"], "transfer")):
        done = run("bench", "store", *words)
        expect(done.code == 2 and text in done.err, f"{words}: {done.code} {done.err}")


@case("usage names every bench, and a refusal names the same")
def _():
    usage = run("help", "bench").out.splitlines()[0]
    names = usage[usage.index("[") + 1:usage.index("]")].split("|")
    done = run("bench", "nothing")
    expect(done.code == 2 and ", ".join(names) in done.err, f"{usage}\n{done.err}")
    expect({"net", "classes", "ssd", "object", "fetch", "conductor"} <= set(names), usage)


@case("bench ssd has rows of a fresh and of a full log, gathers small puts and recovers all")
def _():
    with tempfile.TemporaryDirectory(dir=".") as folder:
        done = run("bench", "ssd", "--dir", folder, "--mib", "64", "--records", "2000", "--rounds",
                   "1", "--json", timeout=2 * DEADLINE_S)
    if done.code != 0 and "no io_uring" in done.err:
        raise Skipped("no io_uring here to compare with")
    expect(done.code == 0, f"{done.code}\n{done.err}")
    found = done.json()
    rows = rows_of(found, "ssd", ("op", "size", "gbps", "ceiling_gbps", "ratio"))
    expect([(row["op"], row["size"]) for row in rows] ==
           [("write", 1 << 20), ("write", 64 << 10), ("write", 4 << 10), ("read", 64 << 10),
            ("read", 1 << 20), ("rewrite", 1 << 20), ("recovery", 64)], f"{rows}")
    expect(all(row["gbps"] > 0 and row["ceiling_gbps"] > 0 for row in rows), f"{rows}")
    expect(found["puts_for_one_write"] >= 50, f"{found}")
    expect(1 <= found["write_amplification"] <= 1.2, f"{found}")
    expect(found["recovered_records"] == 2000 and found["recovery_s"] > 0, f"{found}")


@case("bench object reads back what it put, packed blocks cost fewer requests, nothing stays")
def _():
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        found = bench("object", "--rounds", "1")
        os.chdir(before)
        expect(os.listdir(folder) == [], f"{os.listdir(folder)}")
        rows = rows_of(found, "object", ("op", "layout", "size", "gbps", "bare_gbps", "ratio",
                                         "checked_gbps", "ratio_checked", "ops_per_s",
                                         "requests_per_block", "p50_us", "p99_us"))
        gets = {(row["layout"], row["size"]): row for row in rows if row["op"] == "get"}
        expect(gets["block", 4096]["requests_per_block"] == 1, f"{gets}")
        expect(gets["packed", 4096]["requests_per_block"] < 0.1, f"{gets}")
    for words, text in ((["--store", "ftp://x"], "file:"), (["--batch", "1"], "store")):
        done = run("bench", "object", *words)
        expect(done.code != 0 and text in done.err, f"{words}: {done.code} {done.err}")


@case("bench classes has rows with and without classes for each tier below memory")
def _():
    fields = ("scene", "classes", "first_token_p50_us", "first_token_p99_us", "first_token_gbps",
              "throughput_gbps", "background_gbps", "background_share")
    with tempfile.TemporaryDirectory() as folder:
        for words in (["--on", "ssd", "--dir", folder],
                      ["--on", "object", "--store", f"file:{folder}/store"]):
            found = bench("classes", *words, "--rounds", "1", "--run-ms", "100")
            rows = rows_of(found, "classes", fields)
            expect([row["classes"] for row in rows] == ["on", "on", "on", "off", "off"], f"{rows}")
            expect(found["on"] == words[1] and found["capacity_gbps"] > 0, f"{found}")
    for words, text in ((["--on", "tape"], "ssd or object"),
                        (["--on", "ssd", "--store", "file:x"], "--store"),
                        (["--on", "tcp", "--dir", "x"], "--dir")):
        done = run("bench", "classes", *words)
        expect(done.code != 0 and text in done.err, f"{words}: {done.code} {done.err}")


@case("bench net and transfer do so, too")
def _():
    net = bench("net", "--rounds", "1", "--run-ms", "100", "--idle", "10")
    rows_of(net, "net", ("what", "conns", "batch", "ours", "bare", "ratio"))
    transfer = bench("transfer", "--rounds", "1", "--run-ms", "10", "--sizes", "64k", "--streams",
                     "1", "--fragments", "64", "--path", "tcp")
    rows_of(transfer, "transfer", ("path", "op", "size", "fragments", "streams", "gbps", "ratio",
                                   "p50_us", "p99_us", "cpu_s_per_gb"))


@case("bench conductor measures beside a busy store what it measures beside a quiet one")
def _():
    with Serve("--memory", "64m", command="serve") as store:
        rows = bench("conductor", "--tokens", "8k", "--clients", "2", "--instances", "4",
                     "--rounds", "1", "--beside", "--directory", store.address)
    beside = rows[0]["beside"]
    expect(all(beside[field] > 0 for field in ("quiet_p50_us", "quiet_p99_us", "busy_p50_us",
                                               "busy_p99_us", "p99_ratio", "moved_bytes")) and
           {"store_gbps", "store_alone_gbps", "cpu_busy"} <= set(beside),
           f"{rows}")
    done = run("bench", "net", "--beside")
    expect(done.code != 0 and "--beside" in done.err, f"{done.code} {done.err}")


main()
