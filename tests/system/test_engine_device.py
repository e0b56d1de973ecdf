# SPDX-License-Identifier: Apache-2.0
"""`yuebing engine --device`: KV in the memory of a device, under a stand-in for its driver where a
touch by the CPU faults; through the store, from engine to engine; each byte compared."""
import json

from engine_process import ask, call, engine, numbers, prompt, settled
from yuebing import Serve, case, expect, main, run, until

BLOCK = 65536  # Of 64 tokens.


@case("what an engine computes on its device another one loads onto its own, and onto the host")
def _():
    with Serve("--memory", "64m", command="serve") as store, \
            engine(store.address, "--device", "0") as first, \
            engine(store.address, "--device", "1") as second, \
            engine(store.address) as host:
        expect(first.ready["memory"] == "device 0" and host.ready["memory"] == "host",
               f"{first.ready} {host.ready}")
        tokens = prompt(1, 1000)
        whole = ask(first, tokens, 70)  # The answer makes a block whole, too.
        settled(first)
        for other in (second, host):
            again = ask(other, tokens, 70)
            expect(again["tokens"] == whole["tokens"], f"{again} {whole}")
            expect(again["yuebing"]["loaded_tokens"] == 15 * 64, f"{again}")
            told = numbers(other)
            expect(told["verified_bytes"] == 15 * BLOCK and told["wrong_bytes"] == 0, f"{told}")
        expect(numbers(first)["stored_bytes"] >= 15 * BLOCK, f"{numbers(first)}")


@case("a prompt that one engine computed on its device goes on at another, out of that memory")
def _():
    with engine(None, "--roles", "prefill", "--device", "0") as prefill, \
            engine(None, "--roles", "decode", "--device", "1") as decode, \
            engine(None, "--roles", "decode") as host, engine(None) as alone:
        for length in (1, 64, 999):
            tokens = prompt(10 + length, length)
            expected = ask(alone, tokens, 20)["tokens"]
            for other in (decode, host):
                kept = ask(prefill, tokens, kv_transfer_params={"do_remote_decode": True})
                answer = ask(other, tokens, 20, kv_transfer_params=kept["kv_transfer_params"])
                expect(answer["yuebing"]["pulled_tokens"] == length, f"{answer}")
                expect(answer["tokens"] == expected, f"{answer}")
                until(lambda: numbers(prefill)["held"] == 0, "it is let go")


def standin(settings):
    return {"STANDIN_CUDA": settings}


@case("what the driver does not carry out fails that one request; nothing of it is stored, and the "
      "next is answered")
def _():
    tokens = prompt(20, 1000)
    with engine(None) as alone:
        expected = ask(alone, tokens, 70)["tokens"]
    for setting in ("fail_start=3", "fail_copy=3", "fail_record=3"):
        with Serve("--memory", "64m", command="serve") as store, \
                engine(store.address, "--device", "0", more=standin(setting)) as first, \
                engine(store.address) as host:
            code, body = call(first, "POST", "/v1/completions",
                              json.dumps({"prompt": tokens, "max_tokens": 70}))
            expect(code == 503 and b"device" in body, f"{setting}: {code} {body}")
            settled(first)
            expect(ask(host, tokens, 70)["tokens"] == expected, setting)
            expect(numbers(host)["loaded_tokens"] == 0, f"{setting}: {numbers(host)}")
            settled(host)
            expect(ask(first, tokens, 70)["tokens"] == expected, setting)


@case("a load onto a device that the driver does not carry out is computed instead, and counted")
def _():
    with Serve("--memory", "64m", command="serve") as store, engine(store.address) as host:
        tokens = prompt(30, 1000)
        expected = ask(host, tokens, 70)["tokens"]
        settled(host)
        failures = 0
        for copy in (1, 61, 90, 119):  # 60 parts come over, and then are looked at.
            with engine(store.address, "--device", "0",
                        more=standin(f"fail_copy={copy}")) as loads:
                again = ask(loads, tokens, 70)
                expect(again["tokens"] == expected, f"{copy}: {again}")
                told = numbers(loads)
                expect(told["wrong_bytes"] == 0, f"{copy}: {told}")
                # What was to come over is asked for again; what was to be looked at is not known.
                lost = again["yuebing"]["loaded_tokens"] < 15 * 64
                expect(told["load_failures"] == lost, f"{copy}: {told}")
                failures += lost
        expect(failures > 0, "some of them were to be looked at")


@case("a device that is not there is refused in words")
def _():
    done = run("engine", "--no-store", "--device", "7", timeout=60)
    expect(done.code != 0 and "no device 7" in done.err and "doctor" in done.err, done.err)


if __name__ == "__main__":
    main()
