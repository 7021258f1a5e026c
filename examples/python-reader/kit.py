#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers the questions of the conformance kit (shm/testdata/conformance/README.md) through
mirror.py: kit.py PATH, a question on each line of standard input, an answer in JSON on each
line of standard output. {"skip": true} answers what mirror.py does not offer."""
import json
import sys

from mirror import Busy, Gone, Mirror, Refused, Stale

STATES = {1: "boot", 2: "run", 3: "halt", 4: "fail"}
ERRORS = {Stale: "stale", Gone: "gone", Busy: "busy", Refused: "refused"}


def answer(state, path, verb, name):
    if verb == "open":
        state["mirror"], state["handles"] = Mirror(path), {}
        return {"ok": True}
    mirror = state.get("mirror")
    if mirror is None or verb == "load" and name not in state["handles"]:
        return {"error": "not-open"}
    if verb == "find":
        handle = mirror.find(name)
        state["handles"][name] = handle
        return {"index": handle[0], "generation": handle[1]}
    if verb == "load":
        packets, size, sampled = mirror.load(state["handles"][name])
        return {"packets": packets, "bytes": size, "sampled_at": sampled}
    if verb == "status":
        word = mirror.word
        return {"state": STATES[word(648, "=I")], "generation": word(512), "takeovers": word(552), "cycle": word(776),
                "counters_used": word(904, "=I"), "records_used": word(908, "=I")}
    return {"skip": True}


def main():
    state = {}
    for line in sys.stdin:
        verb, _, name = line.rstrip("\n").partition(" ")
        try:
            reply = answer(state, sys.argv[1], verb, name)
        except tuple(ERRORS) as error:
            reply = {"error": ERRORS[type(error)]}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
