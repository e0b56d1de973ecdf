# SPDX-License-Identifier: Apache-2.0
"""S26, look, then fetch: an answer per key, and a hold that keeps what was found."""
from store import MIB, Store
from yuebing import case, expect, main, until


@case("of a group of eight one goes: the get tells exactly which, and brings the others")
def tells_which_is_gone():
    with Store(nodes=2) as store, store.client() as a, store.client() as b:
        a.put("g:0-7", bytes=1000).all("OK")
        b.exist("g:0-7").all("OK")
        a.remove("g:3").each("OK")
        found = b.get("g:0-7", bytes=1000).sound()
        found.each("OK", "OK", "OK", "NOT_FOUND", "OK", "OK", "OK", "OK")
        b.exist("g:0-8").each("OK", "OK", "OK", "NOT_FOUND", "OK", "OK", "OK", "OK", "NOT_FOUND")


@case("what was found with a hold survives a flood that evicts all the rest")
def hold_keeps():
    with Store(memory="32m", lease_ms=5000) as store, store.client() as a, store.client() as b:
        a.put("g:0-7", bytes=MIB // 4).all("OK")
        a.put("old:0-7", bytes=MIB // 4).all("OK")
        b.exist("g:0-7", hold=20000).all("OK")
        for number in range(20):
            a.put(f"flood{number}:0-31", bytes=MIB // 4).all("OK", "NO_SPACE", "AGAIN")
        b.get("g:0-7", bytes=MIB // 4).all("OK")
        gone = b.exist("old:0-7").counted["NOT_FOUND"]
        expect(gone >= 1, f"{gone} of those that nobody held are gone")
        expect(store.metric("yuebing_node_evicted_total") > 0, "there was need")


@case("a hold ends, and then its block may go")
def hold_ends():
    with Store(memory="32m") as store, store.client() as a, store.client() as b:
        a.put("g:0-7", bytes=MIB // 4).all("OK")
        b.exist("g:0-7", hold=100).all("OK")

        def flooded():
            a.put("flood:0-63", bytes=MIB // 4).sound()
            a.remove("flood:0-63").sound()
            a.put("other:0-63", bytes=MIB // 4).sound()
            a.remove("other:0-63").sound()
            a.put("third:0-99", bytes=MIB // 4).sound()
            return b.exist("g:0-7").counted["NOT_FOUND"] > 0
        until(flooded, "what is not held any more is evicted")


@case("a gate that declines says so, and `explain` tells why an engine did not load what was there")
def gate_tells():
    with Store() as store, store.client() as a, \
            store.client(gate=1, prefill_ns=1) as gated:
        a.put("g:0-7", bytes=1000).all("OK")
        gated.get("g:0-7", bytes=1000).all("OK")  # What loading costs is known from here on.
        gated.exist("g:0-7").all("NOT_FOUND")     # Nothing is as fast as computing there.
        a.exist("g:0-7").all("OK")
        expect(gated.counters()["gated"] == 8, "counted")
        until(lambda: store.explain("g:7")["declined"], "the directory is told")
        found = store.explain("g:7")
        expect(found["presence"] == "present" and found["declined"]["reason"] == "slower"
               and found["declined"]["load_us"] > found["declined"]["compute_us"], str(found))
        expect("declined by a reuse gate" in store.command("explain", "g:7"), "for people")
        a.remove("g:3").each("OK")
        until(lambda: gated.exist("g:0-7").counted["NOT_FOUND"] == 8
              and store.explain("g:5")["declined"]["reason"] == "behind_gap", "the run ends")
        expect(store.explain("g:1")["declined"]["reason"] == "slower", "before it as before")
        expect(store.directory.metric("yuebing_directory_declined_total") >= 15, "in metrics")


main()
