# SPDX-License-Identifier: Apache-2.0
"""`yuebing verify`: the links of a cluster that is whole, of one that lacks some, and of one with a
broken one: it is named, with the remedy."""
import json
import os
import signal
import tempfile
import urllib.request

from engine_process import ask, prompt, settled
from yuebing import SLOWER, Serve, case, expect, main, run, until

LONG_S = 60 * SLOWER
NAMES = ["metadata map", "prefetch", "local hit", "return to origin", "end-to-end reuse"]


def verify(directory, *words):
    done = run("verify", "--directory", directory, "--json", *words, timeout=2 * LONG_S)
    expect(done.out, f"{done.code}: {done.err}")
    told = done.json()
    expect([link["name"] for link in told["links"]] == NAMES, f"{told}")
    states = {link["name"]: link["state"] for link in told["links"]}
    expect(told["whole"] == (done.code == 0) == ("broken" not in states.values()), f"{told}")
    return states, {link["name"]: link for link in told["links"]}


def audit(http):
    with urllib.request.urlopen(f"http://{http}/v1/audit", timeout=LONG_S) as answer:
        return json.load(answer)


def engine(store, conductor, name, *words):
    return Serve("--http-listen", "127.0.0.1:0", "--directory", store, "--conductor", conductor,
                 "--name", name, "--time-scale", "0.002", "--block-tokens", "64", "--block-bytes",
                 "65536", "--pool", "64", *words, command="engine")


@case("all five links of a whole cluster are tried with bytes, through two engines, too")
def _():
    with tempfile.TemporaryDirectory(prefix="yuebing-verify-") as where, \
            Serve("--memory", "64m", "--data-dir", os.path.join(where, "one"),
                  "--node-ssd-bytes", "256m", command="serve") as store, \
            Serve("--memory", "64m", "--directory", store.address, "--name", "two",
                  command="node"), \
            Serve("--http", "127.0.0.1:0", "--directory", store.address, "--block-tokens", "64",
                  command="conductor") as conductor:
        http = conductor.ready["http"]
        with engine(store.address, "http://" + http, "a"), \
                engine(store.address, "http://" + http, "b"):
            states, links = verify(store.address, "--conductor", http)
            expect(set(states.values()) == {"ok"}, f"{links}")
            expect(all(link["bytes"] > 0 for link in links.values()), f"{links}")
            expect(links["metadata map"]["bytes"] == 2 << 20, f"{links}")
            expect(links["end-to-end reuse"]["bytes"] == 4 * 65536, f"{links}")
            until(lambda: audit(http)["requests"] == 0, "its requests have ended")
            told = audit(http)
            expect(told["outcomes"]["expired"] == 0, f"each order has an outcome: {told}")
        done = run("ls", "yuebing/verify/", "--directory", store.address, timeout=LONG_S)
        expect(done.out.strip() == "", f"nothing is left behind: {done.out}")


@case("engines reuse for a trial also what it would be faster to compute")
def _():
    slow = ("--load-rate", "400000")
    with Serve("--memory", "64m", command="serve") as store, \
            Serve("--http", "127.0.0.1:0", "--directory", store.address, "--block-tokens", "64",
                  command="conductor") as conductor:
        http = conductor.ready["http"]
        with engine(store.address, "http://" + http, "a", *slow) as one, \
                engine(store.address, "http://" + http, "b", *slow) as other:
            for seed, (first, then) in enumerate(((one, other), (other, one))):
                ask(first, prompt(seed, 257))
                settled(first)
                told = ask(then, prompt(seed, 257))["yuebing"]
                expect(told["loaded_tokens"] > 0, f"slowly, as it learns: {told}")
            states, links = verify(store.address, "--conductor", http)
            expect(states["end-to-end reuse"] == "ok", f"{links}")
            expect(links["end-to-end reuse"]["bytes"] == 4 * 65536, f"{links}")


@case("what a cluster does not have is absent, and no failure")
def _():
    with Serve("--memory", "64m", command="serve") as store:
        states, links = verify(store.address)
        expect(states == dict(zip(NAMES, ["ok", "absent", "ok", "absent", "ok"])), f"{links}")
        expect("--data-dir" in links["return to origin"]["text"], f"{links}")


@case("a link that is broken is named, with the node and the remedy")
def _():
    # However long the questions take, who is stopped stays a member.
    with Serve("--memory", "64m", "--directory-lease-ms", "60000", command="serve") as store:
        second = Serve("--memory", "64m", "--directory", store.address, "--name", "second",
                       command="node").begin()
        try:
            second.process.send_signal(signal.SIGSTOP)
            states, links = verify(store.address, "--timeout-ms", str(3000 * SLOWER))
            expect(states["metadata map"] == "broken", f"{links}")
            expect("second" in links["metadata map"]["text"], f"{links}")
            states, links = verify(store.address, "--timeout-ms", str(500 * SLOWER), "--conductor",
                                   store.address)
            expect(states["end-to-end reuse"] == "broken", f"{links}")
            expect("no conductor answers" in links["end-to-end reuse"]["text"], f"{links}")
        finally:
            second.process.send_signal(signal.SIGCONT)
            second.kill()


@case("a tier that has stepped aside is broken, with its reason, though another node has one")
def _():
    with tempfile.TemporaryDirectory(prefix="yuebing-verify-") as where:
        def disk(name):
            return ("--data-dir", os.path.join(where, name), "--node-ssd-bytes", "64m")
        with Serve("--memory", "64m", *disk("one"), command="serve") as store:
            expect(verify(store.address)[0]["return to origin"] == "ok", "there is one that works")
            with Serve("--memory", "64m", *disk("two"), "--directory", store.address, "--name",
                       "two", command="node"):
                pass
            with open(os.path.join(where, "two", "ssd", "log"), "r+b") as file:
                file.write(b"somebody else's" * 100000)
            with Serve("--memory", "64m", *disk("two"), "--directory", store.address, "--name",
                       "two", command="node"):
                states, links = verify(store.address)
                expect(states["return to origin"] == "broken", f"{links}")
                text = links["return to origin"]["text"]
                expect("node two has no ssd" in text and "give the node an empty directory" in text,
                       text)


@case("without a directory there is nothing to verify, and the reason is said")
def _():
    done = run("verify", "--directory", "127.0.0.1:1", "--timeout-ms", "500", timeout=LONG_S)
    expect(done.code != 0 and "127.0.0.1:1" in done.err, done.err)


if __name__ == "__main__":
    main()
