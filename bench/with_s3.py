#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a command beside a real S3 service, the one that the tests start.

    bench/with_s3.py build/yuebing bench object --rounds 5 --store {s3}

`{s3}` in its words becomes the URL of an empty bucket, and its environment has the key.
"""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "system"))

os.environ.setdefault("YUEBING", "build/yuebing")  # What else the tests' modules would ask for.

from object import Real, sign_with  # noqa: E402
from yuebing import Skipped  # noqa: E402


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        with Real() as service:
            words = [word.replace("{s3}", service.url) for word in sys.argv[1:]]
            return subprocess.run(words, env=sign_with(dict(os.environ)), check=False).returncode
    except Skipped as why:
        sys.exit(f"{sys.argv[0]}: {why}")


if __name__ == "__main__":
    sys.exit(main())
