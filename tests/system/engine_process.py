# SPDX-License-Identifier: Apache-2.0
"""`yuebing engine` as a process, small and quick, and requests to it.

    with engine(store.address) as first:
        answer = ask(first, prompt(1, 1000))
        settled(first)
"""
import http.client
import json

from yuebing import Serve, expect, until

SMALL = ("--time-scale", "0.002", "--block-tokens", "64", "--block-bytes", "65536", "--pool", "128")


def engine(directory, *words, more=()):
    place = ("--no-store",) if directory is None else ("--directory", directory)
    return Serve("--http-listen", "127.0.0.1:0", *place, *SMALL, *words, command="engine",
                 more=more)


def call(server, method, path, body=None, headers=()):
    connection = http.client.HTTPConnection(server.ready["http"], timeout=60)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def ask(server, prompt, count=8, **more):
    code, body = call(server, "POST", "/v1/completions",
                      json.dumps({"prompt": prompt, "max_tokens": count, **more}))
    expect(code == 200, f"{code}: {body}")
    answer = json.loads(body)
    answer["tokens"] = answer["choices"][0]["token_ids"]
    expect(answer["yuebing"]["wrong_bytes"] == 0, f"{answer}")
    return answer


def numbers(server):
    return json.loads(call(server, "GET", "/v1/engine")[1])


def settled(server):
    until(lambda: numbers(server)["stores"] == 0, "the stores have ended")


def prompt(number, length):
    return [number * 100000 + i for i in range(length)]
