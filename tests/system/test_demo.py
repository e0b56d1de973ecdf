# SPDX-License-Identifier: Apache-2.0
"""`yuebing demo` in short: whole clusters of real processes, each byte compared."""
import ctypes
import os
import subprocess

from yuebing import DEADLINE_S, SLOWER, Skipped, case, demo_folders, expect, main, run

PIDFD_OPEN, PIDFD_GETFD = 434, 438  # The same numbers on every architecture.
LONG_S = 60 + 2 * DEADLINE_S


def may_look_into_children():
    """Whether a process may take copies of the descriptors of those that it started."""
    libc = ctypes.CDLL(None, use_errno=True)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    try:
        process = libc.syscall(PIDFD_OPEN, child.pid, 0)
        copy = libc.syscall(PIDFD_GETFD, process, 0, 0) if process >= 0 else -1
        for fd in (process, copy):
            if fd >= 0:
                os.close(fd)
        return copy >= 0
    finally:
        child.stdin.close()
        child.wait()


def line(*words):
    """What a run says as JSON, and beside it; no byte was wrong, and nothing is left of it."""
    done = run("demo", "--json", *words, timeout=LONG_S)
    expect(done.code == 0, f"{done.code}: {done.err}")
    expect(done.out.count("\n") == 1, "it is one line")
    found = done.json()
    expect(found["wrong_bytes"] == 0 and found["verified_bytes"] > 0, f"{found}")
    expect(not demo_folders(done.pid), "a folder was left behind")
    return found, done.err


def told(*words):
    """The columns of a run: what must hold of each is looked at here."""
    found, _ = line(*words)
    for column in found["columns"]:
        expect(column["asked"] == column["answered"] > 0, f"{column}")
        expect(column["instructions_issued"] == column["instructions_terminal"] +
               column["instructions_watched"] > 0, f"{column}")
        expect(column["instructions_open"] == 0 and column["wrong_bytes"] == 0, f"{column}")
    return found["columns"]


@case("a workload on a pool: each request answered, each instruction ended, no byte wrong")
def _():
    column, = told("--only", "pool", "--seconds", "3")
    expect(column["stored_bytes"] > 0 and column["pulled_bytes"] > 0, f"{column}")
    expect(column["verified_bytes"] >= column["pulled_bytes"], f"{column}")
    # A machine without time to spare lets a node's lease end: then some are stored nowhere.
    expect(column["store_failures"] == column["load_failures"] == 0 or column["cpu_busy"] > 0.9,
           f"{column}")


@case("links, a node, the directory and the object store that fail cost no byte or request")
def _():
    column, = told("--only", "chaos", "--seconds", "3")
    expect(column["stored_bytes"] > 0, f"{column}")
    expect(column["links_cut"] > 0 or not may_look_into_children(), f"{column}")


@case("several conductors are asked in turns; each hears how its own decisions ended")
def _():
    column, = told("--only", "conductors", "--conductors", "3", "--seconds", "3")
    decided = column["decisions"]
    expect(len(decided) == 3 and sum(decided) >= column["asked"], f"{column}")
    expect(min(decided) > column["asked"] / 6, f"{column}")
    # There is no column to compare with in this run.
    expect("beside" not in column and "ttft_over_beside" not in column, f"{column}")


@case("a long prompt is read from the object store through a window, in order, and no more than "
      "that is in memory")
def _():
    if SLOWER > 1:
        raise Skipped("a sanitizer's own memory would be taken for the reader's")
    found, _ = line("--million", "--tokens", "100000")
    expect(found["blocks"] == found["reuse_blocks"] == found["fetched_blocks"] == 781, f"{found}")
    expect(found["verified_bytes"] == 781 * found["block_bytes"], f"{found}")
    expect(found["out_of_order"] == found["failed"] == 0, f"{found}")
    expect(found["object_blocks"] > found["memory_blocks"], f"{found}")
    expect(found["grown_bytes"] < found["verified_bytes"], f"{found}")
    expect(found["instructions_issued"] > 0 and found["instructions_open"] == 0, f"{found}")


@case("chunks of answers go on wherever there is room, and find their KV there or pull it")
def _():
    found, _ = line("--rollout", "--answers", "64", "--only", "seer")
    column, = found["columns"]
    expect(column["name"] == "seer" and column["answers"] == found["answers"] == 64, f"{column}")
    expect(column["chunks"] > 64 and column["failed"] == 0, f"{column}")
    expect(0 < column["migrated"] < column["chunks"], f"{column}")
    expect(column["device_tokens"] > 0 and column["loaded_tokens"] > 0, f"{column}")


@case("a column that is none, and a trace that is none, are refused in words")
def _():
    done = run("demo", "--only", "nothing", "--seconds", "1", timeout=LONG_S)
    expect(done.code == 1 and "no such column" in done.err, done.err)
    done = run("demo", "--trace", "/nonexistent", timeout=LONG_S)
    expect(done.code == 1 and "/nonexistent" in done.err, done.err)


if __name__ == "__main__":
    main()
