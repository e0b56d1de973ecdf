# SPDX-License-Identifier: Apache-2.0
"""`yuebing demo` on a terminal, where its cluster stays; and killed: what its processes come to."""
import json
import os
import pty
import re
import signal
import subprocess
import threading

from yuebing import (DEADLINE_S, PROGRAM, case, demo_folders, environment, expect, main, run,
                     until)

LONG_S = 60 + 2 * DEADLINE_S


@case("killed in the middle, it leaves neither processes nor a folder behind")
def _():
    demo = subprocess.Popen([PROGRAM, "demo", "--only", "pool", "--seconds", "600"],
                            env=environment(), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        expect("yuebing demo" in demo.stdout.readline(), "the first line")
        made = until(lambda: demo_folders(demo.pid), "its folder is there", LONG_S)
        until(lambda: os.path.exists(made.copy().pop() + "/node2"), "its nodes are", LONG_S)
    finally:
        demo.kill()
        demo.wait()
    until(lambda: not demo_folders(demo.pid), "its folder is gone", 20 + DEADLINE_S)
    # All its processes have a copy of what it wrote to: this ends when the last one has.
    expect(demo.stdout.read() is not None, "its processes have ended")
    demo.stdout.close()


def read_all(fd, into):
    """What comes from a terminal, until nobody has it open any more."""
    try:
        while piece := os.read(fd, 4096):
            into.extend(piece)
    except OSError:
        pass


def life_of_slowest(at):
    """The life of the request that took longest, as it is shown to people."""
    done = run("trace", "--slowest", "1", "--at", at, "--json")
    expect(done.code == 0, done.err)
    done = run("trace", json.loads(done.out)["slowest"][0]["trace"], "--at", at)
    expect(done.code == 0, done.err)
    return done.out


@case("on a terminal the cluster stays to be looked at, a request is one trace in conductor and "
      "both engines, and Ctrl-C ends it")
def _():
    ours, theirs = pty.openpty()
    said = bytearray()
    demo = subprocess.Popen([PROGRAM, "demo", "--only", "pool", "--seconds", "2"],
                            env=environment(), stdin=theirs, stdout=theirs,
                            stderr=subprocess.DEVNULL)
    os.close(theirs)
    reader = threading.Thread(target=read_all, args=(ours, said))
    reader.start()
    try:
        found = until(lambda: re.search(rb"dashboard: http://([0-9.:]+)/", said), "it says where",
                      LONG_S)
        life = life_of_slowest(found.group(1).decode())
        for word in ("decide", "prefill", "pull", "conductor", "engine p", "engine d",
                     "from device"):
            expect(word in life, f"{word}: {life}")
        demo.send_signal(signal.SIGINT)
        expect(demo.wait(LONG_S) == 0, "it ends well")
    finally:
        demo.kill()
        demo.wait()
        reader.join()
        os.close(ours)


if __name__ == "__main__":
    main()
