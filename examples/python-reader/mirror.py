# SPDX-License-Identifier: Apache-2.0
"""mirror.py: reads counters of a flowtally mirror, as docs/mirror-format.md specifies.

Every read is one os.pread(2). A file that is cut short gives fewer bytes and no signal,
and two system calls read in the order in which they are made, on every processor. For
another language this file is a pattern: the core is the class Mirror."""
import os
import stat
import struct

HEADER, SEGMENT, SLOTS, ENTRY, COPY, BLOCKS, RECORDS, LIVE = 65536, 4456448, 4096, 1024, 1600, 1, 2, 2


class Refused(Exception):
    """The file is not a mirror that this reader can read, or its content breaks the format."""


class Stale(Exception):
    """The writer gave the file up: another file has its name, or will have it."""


class Gone(LookupError):
    """The counter was removed, or no counter has that name."""


class Busy(Exception):
    """The writer changed the counter in each of 64 tries."""


class Mirror:
    """One open file. A handle is (index, generation), and names one counter for ever."""

    def __init__(self, path, owners=()):
        self.path, self.kinds, self.fd = path, {}, -1
        self.fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        self.file = os.fstat(self.fd)
        if not stat.S_ISREG(self.file.st_mode) or self.file.st_uid not in (0, os.geteuid(), *owners):
            raise Refused("not a regular file of a trusted owner")
        head, total = self.read(0, 128), 0xCBF29CE484222325  # read once: the copy is checked and used
        for byte in head[:120]:
            total = (total ^ byte) * 0x100000001B3 % 2**64
        magic, version, *fixed, incompat, slots, block, history, _, name, checksum = struct.unpack("=8sIIIIQqIIIIIIQ48xQ", head)
        if magic != b"FLOWTALY" or version != 1 or incompat or checksum != total or not name:
            raise Refused("no mirror of version 1")
        if [*fixed[:4], slots, block] != [0x01020304, HEADER, 1, SEGMENT, SLOTS, 64] or history & (history - 1) or history == 1 or history > 2**28:
            raise Refused("the header has a value that is not valid")
        self.start = HEADER + -(-history * 64 // HEADER) * HEADER
        if self.file.st_size < self.start:
            raise Refused("the file is cut short")

    def read(self, at, size):
        data = os.pread(self.fd, size, at)
        if len(data) != size:
            raise Refused("the file is cut short")
        return data

    def word(self, at, form="=Q"):
        return struct.unpack(form, self.read(at, struct.calcsize(form)))[0]

    def segment(self, number):
        """The offset of a segment and its kind, which is read once."""
        if number not in self.kinds:
            if number >= min(self.word(912, "=I"), 4096):
                raise Gone("no segment has that index")
            kind = self.word(8192 + 8 * number, "=I")
            if kind not in (BLOCKS, RECORDS):
                raise Refused("a segment is of no known kind")
            if os.fstat(self.fd).st_size < self.start + (number + 1) * SEGMENT:
                raise Refused("the file is cut short")
            self.kinds[number] = kind
        return self.start + number * SEGMENT, self.kinds[number]

    def fresh(self):
        if self.word(1280):
            raise Stale(self.path)

    def find(self, name):
        """The handle of the counter of that name. During an exchange it may be missing for an instant (R34): look again."""
        for number in range(min(self.word(912, "=I"), 4096)):
            at, _ = self.segment(number)
            for slot in range(min(self.word(8196 + 8 * number, "=I"), SLOTS)):
                entry = at + slot * ENTRY
                identity = self.word(entry)
                found = identity >> 32 == LIVE and self.read(entry + 64, 64).split(b"\0")[0] == name.encode()
                if found and self.word(entry) == identity:
                    self.fresh()
                    return number * SLOTS + slot, identity % 2**32
        self.fresh()
        raise Gone(name)

    def load(self, handle):
        """Packets, bytes and sampled-at of one instant. Sampled-at 0: never sampled."""
        (index, generation), (at, kind) = handle, self.segment(handle[0] // SLOTS)
        slot = index % SLOTS
        seq, value, stride = at + 4194304 + 64 * slot, at + 4194312 + 64 * slot, 24
        if kind == BLOCKS:
            block, row = divmod(slot, 64)
            seq, value, stride = at + 4194304 + 64 * block, at + 4202496 + COPY * block + 64 + 24 * row, 64 * COPY
        for _ in range(64):
            word = self.word(seq)
            self.fresh()
            if self.word(at + slot * ENTRY) != LIVE << 32 | generation:
                raise Gone(handle)
            values = self.read(value + (word & 1) * stride, 24)
            if self.word(seq) == word:
                return struct.unpack("=QQq", values)
        raise Busy(handle)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    __del__ = close
