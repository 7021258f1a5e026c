# Reads counters by libflowtally.so: library.py LIBRARY MIRROR NAME…
# prints a line per name: its handle, packets, bytes, and sample time.
import ctypes as c
import sys


class Handle(c.Structure):
    _fields_ = [("index", c.c_uint32), ("generation", c.c_uint32)]


class Value(c.Structure):
    _fields_ = [("packets", c.c_uint64), ("bytes", c.c_uint64), ("sampled_at", c.c_int64)]


lib = c.CDLL(sys.argv[1])
lib.ft_strerror.restype = c.c_char_p
lib.ft_counter_open.argtypes = [c.c_void_p, Handle, c.c_void_p]


def new(name):
    """Returns memory for an object of a type of the headers, whose fields stay unknown here."""
    return c.create_string_buffer(c.c_size_t.in_dll(lib, name + "_size").value)


def check(result):
    if result < 0:
        raise OSError(lib.ft_strerror(result).decode())


for struct, name in (Handle, "ft_handle"), (Value, "ft_value"):
    assert c.sizeof(struct) == c.c_size_t.in_dll(lib, name + "_size").value, name

reader, counter = new("ft_reader"), new("ft_counter")
check(lib.ft_open(reader, sys.argv[2].encode(), None))
try:
    for name in sys.argv[3:]:
        handle, value = Handle(), Value()
        check(lib.ft_lookup(reader, name.encode(), c.byref(handle)))
        check(lib.ft_counter_open(reader, handle, counter))
        check(lib.ft_load(counter, c.byref(value)))
        print("load", handle.index, handle.generation, value.packets, value.bytes, value.sampled_at, sep="\t")
finally:
    lib.ft_close(reader)
