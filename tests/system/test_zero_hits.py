# SPDX-License-Identifier: Apache-2.0
"""A hit rate of 0 % says why: check engine, with engines that stand in for real ones."""
from standin import Engine
from yuebing import DEADLINE_S, Serve, Skipped, case, expect, main, run

WORDS = 32


def store():
    return Serve("--memory", "16m", command="serve")


def check(server, a, b, *words, code=0):
    done = run("check", "engine", a.url, b.url, "--json", "--directory",
               server.ready["directory"], "--words", str(WORDS), "--settle-ms", "600", *words,
               timeout=2 * DEADLINE_S)
    if "libcurl" in done.err:
        raise Skipped(done.err.strip())
    expect(done.code == code, f"{done.code}: {done.out} {done.err}")
    return done.json() if done.out else done.err


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
        done = run("keyspaces", "--json", "--strict", "--directory", where)
        expect(done.code == 0 and done.json()["warnings"] == [], done.out)


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


main()
