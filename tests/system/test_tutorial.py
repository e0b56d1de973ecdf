# SPDX-License-Identifier: Apache-2.0
"""docs/tutorial.md, as somebody does it who copies its lines without waiting: each does what is
said, in a network of their own, where its ports are free."""
import os
import re
import shutil
import subprocess

from yuebing import DEADLINE_S, LONG, PROGRAM, Skipped, case, environment, expect, main

HERE = os.path.dirname(os.path.abspath(__file__))
TUTORIAL = os.path.join(HERE, "../../docs/tutorial.md")
ALONE = ("unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child")
UP = "ip link set lo up"


def steps():
    """The blocks whose lines are all ours: a store, two engines, and a look at them."""
    with open(TUTORIAL, encoding="utf-8") as text:
        blocks = re.findall(r"```sh\n(.*?)```", text.read(), re.S)
    found = [block for block in blocks if block.startswith("yuebing ")]
    expect(len(found) == 3, f"{len(found)} steps")
    return found


@case("each line of the tutorial does what it says, also when nobody waits between them")
def _():
    if not LONG:
        raise Skipped("the long form does it")
    for tool in ("unshare", "ip", "curl", "bash"):
        if shutil.which(tool) is None:
            raise Skipped(f"there is no {tool}")
    if subprocess.run([*ALONE, "sh", "-c", UP], capture_output=True, check=False).returncode != 0:
        raise Skipped("this machine allows no network of one's own")
    path = os.path.dirname(os.path.abspath(PROGRAM)) + ":" + os.environ["PATH"]
    done = subprocess.run([*ALONE, "bash", "-euo", "pipefail", "-c", "\n".join([UP, *steps()])],
                          capture_output=True, text=True, timeout=11 * DEADLINE_S, check=False,
                          env={**environment(), "PATH": path})
    expect(done.returncode == 0, f"{done.returncode}: {done.stdout}\n{done.stderr}")
    answers = re.findall(r'"token_ids":(\[[^]]+\])', done.stdout)
    expect(len(answers) == 2 and answers[0] == answers[1], f"both engines answer: {done.stdout}")
    for words in (r"^hello$", r"^second ", r"2 copies", r"end-to-end reuse\s+ok .* engine",
                  r'"name":"engine2"', r'"open":0'):
        expect(re.search(words, done.stdout, re.M), f"{words} in {done.stdout}")


main()
