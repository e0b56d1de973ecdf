# SPDX-License-Identifier: Apache-2.0
"""Every bench runs, checks its bytes and says what it found in JSON. No figure is judged here."""
from yuebing import DEADLINE_S, case, expect, main, run


def bench(*words):
    done = run("bench", *words, "--json", timeout=6 * DEADLINE_S)
    expect(done.code == 0, f"{words}: {done.code}\n{done.err}")
    return done.json()


def rows_of(found, name, fields):
    expect(found["bench"] == name and len(found["rows"]) > 0, f"{found}")
    for row in found["rows"]:
        missing = set(fields) - set(row)
        expect(not missing, f"{name}: {missing} of {row}")
    return found["rows"]


@case("bench directory names every figure, and nothing is zero that was measured")
def _():
    found = bench("directory", "--blocks", "2000,4000", "--outstanding", "1,20", "--keys", "64",
                  "--rounds", "1", "--run-ms", "10")
    fields = ("bytes_per_block", "publish_keys_per_s", "lookup_keys_per_s", "lookup8000_p50_us",
              "lookup8000_p99_us", "death_visible_us", "sweep_step_us_max")
    rows = rows_of(found, "directory", fields)
    expect([(row["blocks"], row["outstanding"]) for row in rows] ==
           [(2000, 1), (2000, 20), (4000, 1), (4000, 20)], f"{rows}")
    for row in rows:
        for field in fields:
            expect(row[field] > 0, f"{field} of {row}")


@case("bench directory refuses what makes no sense, and says so")
def _():
    for words, text in ((["--blocks", "10"], "1000"), (["--outstanding", "0"], "outstanding"),
                        (["--keys", "20000"], "keys"), (["--op", "read"], "transfer")):
        done = run("bench", "directory", *words)
        expect(done.code == 2 and text in done.err, f"{words}: {done.code} {done.err}")


@case("bench net and transfer do so, too")
def _():
    net = bench("net", "--rounds", "1", "--run-ms", "100", "--idle", "10")
    rows_of(net, "net", ("what", "conns", "batch", "ours", "bare", "ratio"))
    transfer = bench("transfer", "--rounds", "1", "--run-ms", "10", "--sizes", "64k", "--streams",
                     "1", "--fragments", "64", "--path", "tcp")
    rows_of(transfer, "transfer", ("path", "op", "size", "fragments", "streams", "gbps", "ratio",
                                   "p50_us", "p99_us", "cpu_s_per_gb"))


main()
