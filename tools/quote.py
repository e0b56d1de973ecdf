#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a text file as one C string literal a line, for a program that carries it.

    quote.py TEXT HEADER
"""
import json
import sys


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as text:
        lines = text.readlines()
    with open(sys.argv[2], "w", encoding="utf-8") as header:
        header.writelines(json.dumps(line) + "\n" for line in lines)


main()
