# SPDX-License-Identifier: Apache-2.0
"""Fill what a command prints into documents: blocks.py PROGRAM [--check] DOCUMENT...

A block is a line `<!-- yuebing WORDS -->` with a fenced piece of code behind it, which becomes what
`PROGRAM WORDS` prints. With --check: says which documents are stale, and fails.
"""
import re
import shlex
import subprocess
import sys

BLOCK = re.compile(r"(<!-- yuebing ([^\n]+) -->\n```sh\n)((?:(?!```)[^\n]*\n)*)(```\n)")


def main():
    program, documents = sys.argv[1], [word for word in sys.argv[2:] if word != "--check"]
    bad = 0
    for document in documents:
        with open(document, encoding="utf-8") as file:
            text = file.read()

        def fill(found):
            # A clean environment: the documents show the tables, not this shell.
            made = subprocess.run([program, *shlex.split(found.group(2))], env={}, check=True,
                                  capture_output=True, text=True)
            return found.group(1) + made.stdout + found.group(4)

        made, count = BLOCK.subn(fill, text)
        if count == 0 or text.count("<!-- yuebing ") != count:
            print(f"{document}: a block without its piece of code, or none at all")
            bad = 1
        elif made != text and "--check" in sys.argv:
            print(f"{document} is stale")
            bad = 1
        elif made != text:
            with open(document, "w", encoding="utf-8") as file:
                file.write(made)
            print(f"wrote {document}")
    return bad


if __name__ == "__main__":
    sys.exit(main())
