package capture

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

func ngBlock(kind uint32, body []byte) []byte {
	n := uint32(12 + (len(body)+3)&^3)
	b := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, kind), n)
	b = append(b, body...)
	b = append(b, make([]byte, int(n)-4-len(b))...)
	return binary.LittleEndian.AppendUint32(b, n)
}

// Blocks of a pcapng file.
func ngHead() []byte {
	return ngBlock(ngSection, []byte{0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255})
}

func ngInterfaceOf(options ...[]byte) []byte {
	return ngBlock(ngInterface, append([]byte{1, 0, 0, 0, 0, 0, 0, 0}, bytes.Join(options, nil)...))
}

func ngOption(code int, value []byte) []byte {
	b := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, uint16(code)), uint16(len(value)))
	return append(append(b, value...), make([]byte, -len(value)&3)...)
}

func ngFrame(index, captured, length uint32, data []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, index)
	b = binary.LittleEndian.AppendUint32(append(b, make([]byte, 8)...), captured)
	return ngBlock(ngEnhanced, append(binary.LittleEndian.AppendUint32(b, length), data...))
}

func zipped(t *testing.T, parts ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for _, p := range parts {
		if _, err := z.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// allocated returns how many bytes f allocates in total, including freed ones.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Captures crafted to fill the memory either end with an error that names the limit, or need the memory of a single
// block. Repeating parts of a file must not add up.
func TestHostileCapturesTakeLittleMemory(t *testing.T) {
	const most = 16 << 20
	frame := ngFrame(0, 60, 60, make([]byte, 60))
	comment := ngOption(1, []byte("none"))
	long := ngInterfaceOf(ngOption(2, make([]byte, 60_000)))
	names := ngBlock(4, append([]byte{1, 0, 12, 0, 10, 0, 0, 1}, "abcdefg\x00\x00\x00\x00\x00"...))
	for _, c := range []struct {
		name string
		file [][]byte
		err  error
		says string
	}{
		{"interfaces", [][]byte{ngHead(), bytes.Repeat(ngInterfaceOf(), 3_300_000), frame}, nil, "more than 65536 interfaces"},
		{"names of interfaces", [][]byte{ngHead(), bytes.Repeat(long, 100), frame}, ErrInterfaces, "1048576 bytes of their names"},
		{"sections", [][]byte{bytes.Repeat(append(ngHead(), ngInterfaceOf()...), 100_000), frame}, io.EOF, ""},
		{"names of addresses", [][]byte{ngHead(), ngInterfaceOf(), bytes.Repeat(names, 200_000), frame}, io.EOF, ""},
		{"comments of one packet", [][]byte{ngHead(), ngInterfaceOf(), ngFrame(0, 60, 60, append(make([]byte, 60), bytes.Repeat(comment, 500_000)...))}, io.EOF, ""},
		{"comments of one interface", [][]byte{ngHead(), ngInterfaceOf(bytes.Repeat(comment, 500_000)), frame}, io.EOF, ""},
		{"a long packet", [][]byte{ngHead(), ngInterfaceOf(), ngFrame(0, 7<<20, 7<<20, make([]byte, 7<<20))}, nil, "exceeds snap length"},
		{"a compressed capture, compressed", [][]byte{zipped(t, ngHead(), ngInterfaceOf(), frame)}, ErrNoCapture, "compressed twice"},
		{"zeros", [][]byte{ngHead(), ngInterfaceOf(), bytes.Repeat(ngBlock(99, make([]byte, 1<<20)), 64)}, ErrInflated, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := zipped(t, c.file...)
			var err error
			used := allocated(func() {
				var in *Reader
				if in, err = Open(bytes.NewReader(file)); err != nil {
					return
				}
				for err == nil {
					_, err = in.Next()
				}
			})
			if c.err != nil && !errors.Is(err, c.err) || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%v, want %v, %q", err, c.err, c.says)
			}
			if used > most {
				t.Errorf("%d bytes of gzip took %d bytes, want %d at most", len(file), used, most)
			}
		})
	}
}

// The lengths of a block contradict one another, or a packet names an interface that its section lacks.
func TestInconsistentPcapngIsReadUpToItsFault(t *testing.T) {
	frame := ngFrame(0, 60, 60, make([]byte, 60))
	good := bytes.Join([][]byte{ngHead(), ngInterfaceOf(), frame}, nil)
	with := func(b ...[]byte) []byte { return append(bytes.Clone(good), bytes.Join(b, nil)...) }
	short := func(n uint32) []byte {
		b := bytes.Clone(frame)
		binary.LittleEndian.PutUint32(b[4:], n)
		return b
	}
	for _, c := range []struct {
		name    string
		file    []byte
		records int
		err     string
	}{
		{"whole", good, 1, ""},
		{"a simple packet", with(ngBlock(ngSimplePacket, append([]byte{60, 0, 0, 0}, make([]byte, 60)...))), 2, ""},
		{"an old packet", with(ngBlock(ngPacket, append(append(make([]byte, 12), 4, 0, 0, 0, 9, 0, 0, 0), 1, 2, 3, 4))), 2, ""},
		{"an unknown block", with(ngBlock(77, make([]byte, 7)), frame), 2, ""},
		{"a second section", with(ngHead(), ngInterfaceOf(), frame), 2, ""},
		{"a packet without an interface in a second section", with(ngHead(), frame), 1, "record 2: interface 0 is not in its section"},
		{"a version to come", bytes.Replace(good, []byte{1, 0, 0, 0, 255}, []byte{2, 0, 0, 0, 255}, 1), 0, "version 2.0"},
		{"an interface that is absent", with(ngFrame(1, 60, 60, make([]byte, 60))), 1, "record 2: interface 1 is not in its section, which has 1"},
		{"a block of no length", with(short(0)), 1, "contradict"},
		{"a block without its end", with(short(8)), 1, "contradict"},
		{"a block shorter than its packet", with(short(64)), 1, "contradict"},
		{"an option longer than its block", append(ngHead(), ngBlock(ngInterface, []byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 255, 0})...), 0, "contradict"},
		{"a cut block", with(frame[:7]), 1, "record 2: the capture ends inside of it"},
		{"a cut packet", with(frame[:50]), 1, "record 2: the capture ends inside of it"},
		{"a cut end", with(frame[:len(frame)-1]), 1, "record 2: the capture ends inside of it"},
	} {
		got, err := readAll(bytes.NewReader(c.file))
		switch {
		case c.err == "" && err != io.EOF, c.err != "" && (err == io.EOF || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		case len(got) != c.records:
			t.Errorf("%s: %d records, want %d", c.name, len(got), c.records)
		}
	}
}

// FuzzAgainstPcapgo compares our reader with pcapgo on pcapng files. Both must read the same packets, as far as both
// read. Ours stops earlier at contradicting lengths, which pcapgo does not compare, and at its limits.
func FuzzAgainstPcapgo(f *testing.F) {
	frame := ngFrame(0, 60, 64, make([]byte, 60))
	f.Add(bytes.Join([][]byte{ngHead(), ngInterfaceOf(ngOption(2, []byte("eth0"))), frame, ngBlock(5, make([]byte, 12)), frame}, nil))
	f.Add(bytes.Join([][]byte{ngHead(), ngInterfaceOf(ngOption(1, []byte("x"))), ngBlock(ngSimplePacket, make([]byte, 12)), ngHead(), frame}, nil))
	f.Fuzz(func(t *testing.T, file []byte) {
		if len(file) < 4 || binary.BigEndian.Uint32(file) != ngSection {
			return
		}
		got, err := readAll(bytes.NewReader(file))
		p, perr := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.NgReaderOptions{WantMixedLinkType: true})
		for i := range got {
			if perr != nil {
				return // pcapgo reads an option that is skipped here
			}
			data, ci, e := p.ReadPacketData()
			if perr = e; e != nil {
				return
			}
			in, _ := p.Interface(ci.InterfaceIndex)
			if in.LinkType == layers.LinkTypeEthernet && (!bytes.Equal(data, got[i].Data) || in.Name != got[i].Interface || max(ci.Length, len(data)) != got[i].Length) {
				t.Fatalf("record %d: %x of %d bytes on %q, pcapgo has %x of %d on %q", i+1, got[i].Data, got[i].Length, got[i].Interface, data, ci.Length, in.Name)
			}
		}
		if perr != nil || err != io.EOF {
			return
		}
		if _, _, e := p.ReadPacketData(); e == nil {
			t.Fatalf("%d records, and pcapgo has another one", len(got))
		}
	})
}
