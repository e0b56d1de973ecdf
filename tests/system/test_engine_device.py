# SPDX-License-Identifier: Apache-2.0
"""`yuebing engine --device`: KV in the memory of a device, under a stand-in for its driver where a
touch by the CPU faults; through the store, from engine to engine; each byte compared."""
from engine_process import ask, engine, numbers, prompt, settled
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


@case("a device that is not there is refused in words")
def _():
    done = run("engine", "--no-store", "--device", "7", timeout=60)
    expect(done.code != 0 and "no device 7" in done.err and "doctor" in done.err, done.err)


if __name__ == "__main__":
    main()
