# SPDX-License-Identifier: Apache-2.0
"""What the lints share: which C files there are, and a C reader that suits the house style.

The style (.clang-format) puts a function's name and its opening brace at the start of a
line, so functions are found without a parser.
"""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FUNCTION = re.compile(r"^(?P<name>[A-Za-z_]\w*)\((?P<params>[^{};]*?)\)\n\{\n", re.M | re.S)
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def files(*suffixes, under=("include", "src", "tests", "bench")):
    """Return the tracked and new files below `under` with one of `suffixes`, relative, sorted."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *under],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(n for n in set(listed.split("\0"))
                  if n.endswith(suffixes) and (ROOT / n).is_file())


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def blank(text):
    """Replace comments and the inside of literals by spaces; line numbers stay."""
    def spaces(match):
        piece = match.group()
        inner = re.sub(r"[^\n]", " ", piece)
        return inner if piece[0] == "/" else piece[0] + inner[1:-1] + piece[-1]
    return NOISE.sub(spaces, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def functions(code):
    """Yield (name, parameters, first line, body text) of each function in blanked code."""
    for match in FUNCTION.finditer(code):
        end = code.find("\n}\n", match.end() - 1)
        if end >= 0:
            first = line_of(code, match.start())
            yield match["name"], match["params"], first, code[match.end():end + 1]


def report(problems):
    """Print the problems and exit 1 if there are any."""
    for problem in problems:
        print(problem)
    raise SystemExit(1 if problems else 0)
