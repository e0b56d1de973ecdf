# SPDX-License-Identifier: Apache-2.0
"""`yuebing demo` that is killed: what its processes and their folder come to."""
import os
import subprocess

from yuebing import DEADLINE_S, PROGRAM, case, demo_folders, environment, expect, main, until

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


if __name__ == "__main__":
    main()
