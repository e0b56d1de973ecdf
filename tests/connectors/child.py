# SPDX-License-Identifier: Apache-2.0
"""A process that plays one rank of an engine: `child.py MODULE REPLY_FD`.

Each line of its standard input is a call of the module's Role, {"do", "with"}; each answer is a
line on REPLY_FD, {"value"} or {"error"}. What the engine itself prints goes to standard output and
error, which the harness keeps in a file.
"""
import importlib
import json
import os
import sys
import traceback


def main():
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    role = None
    module = None
    with os.fdopen(int(sys.argv[2]), "w", encoding="utf-8") as answers:
        for line in sys.stdin:
            call = json.loads(line)
            try:
                if call["do"] == "import":
                    module = importlib.import_module(sys.argv[1])
                    value = None
                elif call["do"] == "new":
                    role = module.Role(**call["with"])
                    value = None
                else:
                    value = getattr(role, call["do"])(**call["with"])
                answer = {"value": value}
            except BaseException as error:  # Whatever it is, the harness is told.
                traceback.print_exc()
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    # Engines leave threads behind that nobody ends; the harness has what it wanted.
    os._exit(0)


if __name__ == "__main__":
    main()
