package capture

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// pcap returns a capture of this link type.
func pcap(link, snaplen uint32, records ...[]byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	b = append(b, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, snaplen)
	b = binary.LittleEndian.AppendUint32(b, link)
	for _, r := range records {
		b = append(b, r...)
	}
	return b
}

func record(caplen, length uint32, data []byte) []byte {
	b := make([]byte, 8)
	b = binary.LittleEndian.AppendUint32(b, caplen)
	b = binary.LittleEndian.AppendUint32(b, length)
	return append(b, data...)
}

func whole(data []byte) []byte { return record(uint32(len(data)), uint32(len(data)), data) }

// readAll returns copies of all records, and the error that ended the capture.
func readAll(r io.Reader) (records []Record, err error) {
	in, err := Open(r)
	if err != nil {
		return nil, err
	}
	for {
		rec, err := in.Next()
		if err != nil {
			if _, again := in.Next(); again != err {
				return records, fmt.Errorf("after %w the next error is %w", err, again)
			}
			return records, err
		}
		rec.Data = bytes.Clone(rec.Data)
		records = append(records, rec)
	}
}

func TestFramesOfEachLinkTypeBecomeEthernetOrIP(t *testing.T) {
	ip := append([]byte{0x45, 0, 0, 20}, make([]byte, 16)...)
	eth := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0}, ip...)
	sll := func(device uint16) []byte {
		b := binary.BigEndian.AppendUint16([]byte{0, 0}, device)
		return append(append(b, 0, 6, 2, 0, 0, 0, 0, 2, 0, 0, 8, 0), ip...)
	}
	sll2 := append([]byte{8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 2, 0, 0, 0, 0, 2, 0, 0}, ip...)
	cooked := append([]byte{0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 8, 0}, ip...)
	for _, c := range []struct {
		link   uint32
		data   []byte
		want   []byte
		layer3 bool
	}{
		{1, eth, eth, false},
		{1 | 0x14<<24, eth, eth, false}, // with the length of the FCS in the upper bits
		{101, ip, ip, true}, {12, ip, ip, true}, {228, ip, ip, true}, {229, ip, ip, true},
		{0, append([]byte{2, 0, 0, 0}, ip...), ip, true},
		{108, append([]byte{0, 0, 0, 2}, ip...), ip, true},
		{113, sll(1), cooked, false}, {113, sll(772), cooked, false}, {113, sll(65534), ip, true},
		{276, sll2, cooked, false},
		{113, sll(1)[:15], []byte{}, false}, {276, sll2[:19], []byte{}, false}, {0, []byte{1, 2}, []byte{}, true},
	} {
		got, err := readAll(bytes.NewReader(pcap(c.link, 1500, whole(c.data), whole(c.data))))
		if err != io.EOF || len(got) != 2 {
			t.Errorf("link type %d: %d records, %v", c.link, len(got), err)
			continue
		}
		for _, r := range got {
			if !bytes.Equal(r.Data, c.want) || r.Layer3 != c.layer3 || r.Length != len(c.want) && len(c.want) > 0 {
				t.Errorf("link type %d: %x of %d bytes, layer3 %t\nwant %x, %t", c.link, r.Data, r.Length, r.Layer3, c.want, c.layer3)
			}
		}
	}
	for _, link := range []uint32{105, 127, 220, 9999} {
		_, err := readAll(bytes.NewReader(pcap(link, 1500)))
		if !errors.Is(err, ErrLink) || !strings.Contains(err.Error(), fmt.Sprintf("link type %d", link)) {
			t.Errorf("link type %d: %v", link, err)
		}
	}
}

func TestBrokenCaptureIsReadUpToItsFault(t *testing.T) {
	data := make([]byte, 60)
	good := whole(data)
	for _, c := range []struct {
		name    string
		file    []byte
		records int
		err     string
	}{
		{"empty", nil, 0, "it is empty"},
		{"one byte", []byte{0xd4}, 0, "ends after 1 byte"},
		{"half a head", pcap(1, 1500)[:20], 0, "ends in the file's head"},
		{"text", []byte("flows:\n- name: web\n"), 0, "no capture"},
		{"gzip of nothing", []byte{0x1f, 0x8b, 8, 0}, 0, "gzip"},
		{"no records", pcap(1, 1500), 0, ""},
		{"record's head cut", pcap(1, 1500, good, good[:15]), 1, "record 2: the capture ends inside of it"},
		{"record without its data", pcap(1, 1500, good, good[:16]), 1, "record 2: the capture ends inside of it"},
		{"record cut", pcap(1, 1500, good, good[:70]), 1, "record 2: the capture ends inside of it"},
		{"huge capture length", pcap(1, 1500, good, record(0xffffffff, 0xffffffff, data)), 1, "record 2: capture length exceeds snap length"},
		{"huge lengths everywhere", pcap(1, 0xffffffff, good, record(0xffffffff, 0xffffffff, data)), 1, "record 2: capture length exceeds snap length"},
		{"longer than the frame", pcap(1, 1500, good, record(60, 59, data)), 1, "record 2: capture length exceeds original packet length"},
		{"cut by the capture", pcap(1, 60, record(60, 1514, data)), 1, ""},
		{"empty record", pcap(1, 60, record(0, 0, nil), good), 2, ""},
		{"a version to come", bytes.Replace(pcap(1, 60), []byte{2, 0, 4, 0}, []byte{3, 0, 4, 0}, 1), 0, "version"},
		{"pcapng's head alone", []byte{0x0a, 0x0d, 0x0d, 0x0a}, 0, "no capture"},
	} {
		got, err := readAll(iotest.HalfReader(bytes.NewReader(c.file)))
		switch {
		case c.err == "" && err != io.EOF, c.err != "" && (err == io.EOF || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		case len(got) != c.records:
			t.Errorf("%s: %d records, want %d", c.name, len(got), c.records)
		}
	}
}

// The bomb is a capture of zeros, compressed a thousand times. The honest ones are a large capture with a usual
// compression ratio, and a small one of zeros.
func TestGzipBombEndsAtTheBoundAndHonestGzipIsRead(t *testing.T) {
	const free = 1 << 20
	noise := make([]byte, 4*free)
	rand.NewChaCha8([32]byte{}).Read(noise)
	for name, tt := range map[string]struct {
		data []byte
		err  error
	}{
		"zeros": {make([]byte, 16*free), ErrInflated}, "noise": {noise, nil}, "few zeros": {make([]byte, free/2), nil},
	} {
		var file bytes.Buffer
		z := gzip.NewWriter(&file)
		_, werr := z.Write(tt.data)
		if err := errors.Join(werr, z.Close()); err != nil {
			t.Fatal(err)
		}
		size := file.Len()
		i, err := newInflater(&file, free)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, i)
		if !errors.Is(err, tt.err) || err != nil && n > free+1<<20 || err == nil && n != int64(len(tt.data)) {
			t.Errorf("%s: %d of %d bytes, from %d, %v; want %v", name, n, len(tt.data), size, err, tt.err)
		}
	}
}

// ng returns a pcapng file with two interfaces.
func ng(t *testing.T, second layers.LinkType) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriterInterface(&b, pcapgo.NgInterface{Name: "eth0", LinkType: layers.LinkTypeEthernet, SnapLength: 0}, pcapgo.DefaultNgWriterOptions)
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.AddInterface(pcapgo.NgInterface{Name: "tun0", LinkType: second})
	if err != nil {
		t.Fatal(err)
	}
	for i, index := range []int{0, other, 0} {
		data := bytes.Repeat([]byte{byte(0x45 + i)}, 20+i)
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(data), Length: len(data), InterfaceIndex: index}, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPcapngRecordsHaveTheNameAndTheLayerOfTheirInterface(t *testing.T) {
	file := ng(t, layers.LinkTypeRaw)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(file)
	w.Close()
	for _, file := range [][]byte{file, z.Bytes()} {
		got, err := readAll(bytes.NewReader(file))
		if err != io.EOF || len(got) != 3 {
			t.Fatalf("%d records, %v", len(got), err)
		}
		for i, want := range []Record{{Length: 20, Interface: "eth0"}, {Length: 21, Interface: "tun0", Layer3: true}, {Length: 22, Interface: "eth0"}} {
			if r := got[i]; r.Length != want.Length || len(r.Data) != want.Length || r.Interface != want.Interface || r.Layer3 != want.Layer3 {
				t.Errorf("record %d: %+v, want %+v", i, r, want)
			}
		}
	}
	got, err := readAll(bytes.NewReader(ng(t, layers.LinkTypeIEEE802_11)))
	if len(got) != 1 || !errors.Is(err, ErrLink) || !strings.Contains(err.Error(), "record 2") {
		t.Errorf("%d records, %v; want 1, and the link type of record 2 refused", len(got), err)
	}
}

// FuzzReader checks that any input yields records or an error. If a pcap file yields no error, the test's own count of
// records must agree.
func FuzzReader(f *testing.F) {
	data := make([]byte, 60)
	f.Add(pcap(1, 1500, whole(data), record(60, 1514, data)))
	f.Add(pcap(101, 0, whole(data), record(0xffffffff, 0xffffffff, data)))
	f.Add(pcap(113, 0xffffffff, whole(data), whole(data[:3])))
	f.Add([]byte{0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 28, 0, 0, 0})
	f.Fuzz(func(t *testing.T, file []byte) {
		records, err := readAll(bytes.NewReader(file))
		if err == nil {
			t.Fatal("no error, and no io.EOF")
		}
		for i, r := range records {
			if r.Length < len(r.Data) {
				t.Fatalf("record %d has %d bytes of %d", i+1, len(r.Data), r.Length)
			}
		}
		if len(file) < 24 || binary.LittleEndian.Uint32(file) != 0xa1b2c3d4 {
			return
		}
		n, at := 0, 24
		for at+16 <= len(file) {
			at += 16 + int(binary.LittleEndian.Uint32(file[at+8:]))
			if at <= len(file) {
				n++
			}
		}
		if err == io.EOF && (n != len(records) || at != len(file)) {
			t.Fatalf("%d records of %d, and no error", len(records), n)
		}
		if len(records) > n {
			t.Fatalf("%d records of %d", len(records), n)
		}
	})
}
