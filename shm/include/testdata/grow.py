"""grow.py: testdata/grow.c in Python, by the reader of examples/python-reader.

    grow.py PATH READS SEGMENTS"""
import random
import sys

import mirror

m = mirror.Mirror(sys.argv[1])
want, enough = int(sys.argv[2]), int(sys.argv[3])
reads, torn, late, busy, absent, handles, index, seen = 0, 0, 0, 0, 0, [], 0, set()
while reads < want or len(seen) < enough:
    segments = min(m.word(912, "=I"), 4096)
    for number in range(index // mirror.SLOTS, segments):
        at, _ = m.segment(number)
        high = m.word(8196 + 8 * number, "=I")
        for slot in range(index % mirror.SLOTS if number == index // mirror.SLOTS else 0, high):
            identity = m.word(at + slot * mirror.ENTRY)
            if identity >> 32 != mirror.LIVE:
                break
            handles.append((number * mirror.SLOTS + slot, identity % 2**32))
            index = number * mirror.SLOTS + slot + 1
    for handle in random.choices(handles, k=2000) if handles else ():
        done = m.word(776)
        try:
            packets, size, sampled = m.load(handle)
        except mirror.Busy:
            busy += 1
            continue
        if sampled == 0:
            absent += 1
            continue
        reads += 1
        torn += size != 1500 * packets
        late += packets < done
        seen.add(handle[0] // mirror.SLOTS)
print(f"reads {reads} segments {segments} torn {torn} late {late} busy {busy} absent {absent}")
sys.exit(bool(torn or late))
