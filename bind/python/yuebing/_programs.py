# SPDX-License-Identifier: Apache-2.0
"""The programs that lie in the package, by their names in PATH."""
import os
import sys


def _run(name):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bin", name)
    try:
        os.execv(path, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {path}: {error.strerror}. Remedy: pip install --force-reinstall yuebing")


def yuebing():
    _run("yuebing")


def mooncake_master():
    _run("mooncake_master")


def mooncake_client():
    _run("mooncake_client")


def mooncake_http_metadata_server():
    _run("mooncake_http_metadata_server")
