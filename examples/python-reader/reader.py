#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints counters of a flowtally instance, and goes on over restarts of its writer:

    reader.py [-i SECONDS] [-n TIMES] INSTANCE NAME...

INSTANCE is a name, as in "default", or the path of a mirror. Needs no privilege and
nothing but the standard library."""
import argparse
import os
import stat
import time

from mirror import Busy, Gone, Mirror, Refused, Stale


def alive(mirror):
    """Whether the writer gave a sign of life within two periods, and did not give the file up."""
    age, period = time.monotonic_ns() - mirror.word(640, "=q"), mirror.word(536)
    return mirror.word(648, "=I") in (1, 2) and age <= 2 * period and not mirror.word(1280)


def places(instance):
    """The paths that a mirror of that name may have, in the order of docs/mirror-format.md."""
    if "/" in instance:
        return [instance]
    user = os.environ.get("XDG_RUNTIME_DIR", "")
    parents = ["/run", "/dev/shm"] + [user] * user.startswith("/")
    return [f"{parent}/flowtally/{instance}.mirror" for parent in parents]


def trusted(path):
    """Whether the directory of the path is one, and no link, of root or this user."""
    status = os.lstat(os.path.dirname(path) or ".")
    return stat.S_ISDIR(status.st_mode) and status.st_uid in (0, os.geteuid())


class Instance:
    """The mirror of an instance, whichever file that is now, and counters by their names."""

    def __init__(self, instance):
        self.instance, self.mirror, self.handles = instance, None, {}
        self.follow()

    def follow(self):
        """Opens the file that has the name now. The one that is open stays if it is that one."""
        dead, reason = None, FileNotFoundError(f"no mirror of {self.instance}")
        for path in places(self.instance):
            try:
                if "/" not in self.instance and not trusted(path):
                    continue
                mirror = Mirror(path)
                if alive(mirror):
                    break
                dead = dead or mirror
            except FileNotFoundError:
                continue
            except (OSError, Refused) as error:
                reason = error
        else:
            mirror = dead
        if mirror is None:
            raise reason
        if self.mirror is None or not os.path.samestat(mirror.file, self.mirror.file):
            self.mirror, self.handles = mirror, {}

    def load(self, name):
        """The value of a counter. The name is looked up again when its counter is gone."""
        for _ in range(2):
            if name not in self.handles:
                self.handles[name] = self.mirror.find(name)
            try:
                return self.mirror.load(self.handles[name])
            except Gone:
                del self.handles[name]
        raise Gone(name)


def show(instance, name):
    try:
        packets, size, sampled = instance.load(name)
    except Gone:
        return "no counter of that name"
    except Busy:
        return "busy"
    if sampled == 0:
        return "not sampled yet"
    age = (time.monotonic_ns() - sampled) / 1e9
    return f"{packets} packets, {size} bytes, {age:.3f} s old"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-i", type=float, default=1, metavar="SECONDS")
    parser.add_argument("-n", type=int, default=-1, metavar="TIMES")
    parser.add_argument("instance")
    parser.add_argument("names", nargs="+", metavar="NAME")
    args = parser.parse_args()
    instance = Instance(args.instance)
    while args.n != 0:
        try:
            instance.follow()
        except (OSError, Refused):
            pass  # nothing has the name now: the file that is open still has its last values
        try:
            for name in args.names:
                print(f"{name}: {show(instance, name)}", flush=True)
            print(f"writer: {'alive' if alive(instance.mirror) else 'not alive, these are its last values'}", flush=True)
        except (Stale, Refused) as error:
            print(f"mirror: {type(error).__name__.lower()}: {error}", flush=True)
        args.n -= 1
        if args.n != 0:
            time.sleep(args.i)


if __name__ == "__main__":
    main()
