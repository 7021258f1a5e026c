package flexio

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// laidOut calls f with each structure that has a layout.
func laidOut(f func(structure string, t table)) {
	for _, tables := range []map[string]table{queueTables, commandTables} {
		for structure, t := range tables {
			if t.size > 0 {
				f(structure, t)
			}
		}
	}
}

// entryBytes is the entry as a device writes it.
func entryBytes(c CQE64) []byte {
	b := make([]byte, 64)
	c.store(b)
	return b
}

// Every pattern of bits is a valid structure, and no bit of a field may be lost.
func FuzzIdentity(f *testing.F) {
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 272))
	walk := make([]byte, 272)
	for i := range walk {
		walk[i] = byte(i)
	}
	f.Add(walk)
	f.Add(walk[:64])
	f.Fuzz(func(t *testing.T, b []byte) {
		laidOut(func(structure string, table table) { identity(t, structure, table, b) })
		if len(b) >= 64 {
			sameEntry(t, b)
		}
	})
}

// identity decodes b and encodes it again: the bits of the fields are the same.
func identity(t *testing.T, structure string, table table, b []byte) {
	t.Helper()
	v, err := Decode(structure, b)
	if len(b) < table.size {
		if !errors.Is(err, ErrShort) {
			t.Errorf("%s from %d bytes: %v, want %v", structure, len(b), err, ErrShort)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", structure, err)
	}
	prefix := []byte("before")
	got, err := Append(prefix, structure, v)
	if err != nil {
		t.Fatalf("%s: %v", structure, err)
	}
	want := bytes.Clone(b[:table.size])
	for i, m := range mask(table) {
		want[i] &= m
	}
	if !bytes.Equal(got[:len(prefix)], prefix) || !bytes.Equal(got[len(prefix):], want) {
		t.Errorf("%s:\n%x became\n%x", structure, want, got[len(prefix):])
	}
	again, err := Decode(structure, got[len(prefix):])
	if err != nil || !reflect.DeepEqual(again, v) {
		t.Errorf("%+v became %+v, %v", v, again, err)
	}
}

// mask has the bits that fields have. A command has others, which are reserved.
func mask(of table) []byte {
	m := make([]byte, of.size)
	for _, f := range of.fields {
		if f.kind == inner {
			copy(m[f.first/8:], mask(commandTables[f.of]))
			continue
		}
		for i := f.first; i < f.first+f.width; i++ {
			m[i/8] |= 0x80 >> (i % 8)
		}
	}
	return m
}

// goName is the name that a field of flexio_dev_cqe64 has in CQE64, without regard to case.
func goName(name string) string { return strings.ReplaceAll(name, "_", "") }

// sameEntry compares the entry that hot paths read with the one that the table reads.
func sameEntry(t *testing.T, b []byte) {
	t.Helper()
	v, err := Decode("flexio_dev_cqe64", b)
	if err != nil {
		t.Fatal(err)
	}
	var c CQE64
	c.load(b)
	for _, f := range queueTables["flexio_dev_cqe64"].fields {
		got := reflect.ValueOf(c).FieldByNameFunc(func(s string) bool { return strings.EqualFold(s, goName(f.name)) })
		var same bool
		switch {
		case f.name == "qpn24":
			same = uint64(c.QPN()) == v.Uint("qpn24")
		case f.name == "qpn":
			same = uint64(c.SopRdrop)<<24|uint64(c.QPN()) == v.Uint("qpn")
		case f.kind == octets:
			n := 0
			for n < got.Len() && byte(got.Index(n).Uint()) == v.Bytes(f.name)[n] {
				n++
			}
			same = n == len(v.Bytes(f.name))
		default:
			same = got.Uint() == v.Uint(f.name)
		}
		if !same {
			t.Errorf("%s is %v of %+v, and %v by the table", f.name, got, c, v[f.name])
		}
	}
	if got := entryBytes(c); !bytes.Equal(got, b[:64]) {
		t.Errorf("%x is stored as %x", b[:64], got)
	}
	if isErr := c.OpOwn.Opcode().IsError(); isErr != (c.Err() != nil) || isErr && c.Timestamp() != 0 {
		t.Errorf("error %v, timestamp %d of opcode %v", c.Err(), c.Timestamp(), c.OpOwn.Opcode())
	}
	_, _ = c.OpOwn.Opcode().String(), c.Syndrome.String()
}

// Each field alone is all ones: the hot path and the table agree on where it is.
func TestEntryOfHotPathsIsThatOfTheTable(t *testing.T) {
	table := queueTables["flexio_dev_cqe64"]
	for i := range table.fields {
		table := table
		table.fields = table.fields[i : i+1]
		sameEntry(t, mask(table))
	}
	if n := reflect.TypeFor[CQE64]().NumField(); n != len(table.fields)-1 { // without qpn
		t.Errorf("CQE64 has %d fields, the table %d", n, len(table.fields))
	}
}

// at is n bytes that are 0 but for those given from off on.
func at(n, off int, b ...byte) []byte {
	out := make([]byte, n)
	copy(out[off:], b)
	return out
}

// Single fields are written at the places of the reference.
func TestFieldsDecodeFromTheirBytes(t *testing.T) {
	for _, tt := range []struct {
		structure, field string
		bytes            []byte
		want             uint64
	}{
		{"flexio_dev_cqe64", "csum_ok", at(64, 0x14, 0xab, 0xcd), 0xabcd},      // dword 05h bits 31..16
		{"flexio_dev_cqe64", "byte_cnt", at(64, 0x2c, 1, 2, 3, 4), 0x01020304}, // dword 0Bh
		{"flexio_dev_cqe64", "syndrome", at(64, 0x37, 0x15), 0x15},             // dword 0Dh bits 7..0
		{"flexio_dev_cqe64", "qpn24", at(64, 0x38, 0xff, 1, 2, 3), 0x010203},   // dword 0Eh bits 23..0
		{"flexio_dev_cqe64", "qpn", at(64, 0x38, 0xff, 1, 2, 3), 0xff010203},   // dword 0Eh
		{"flexio_dev_cqe64", "wqe_counter", at(64, 0x3c, 0x12, 0x34), 0x1234},  // dword 0Fh bits 31..16
		{"flexio_dev_mini_cqe64", "num_and_type", at(64, 0x3f, 0x60), 0x60},    // byte 3fh
		{"flexio_dev_mini_cqe64", "validity_iteration_count", at(64, 0x3e, 0x60), 0x60},
		// mlx5_eqe of rdma-core's mlx5_vfio.h, which is not installed: type at 1,
		// sub_type at 3, cqn in the low 24 bits of the word at 0x38, owner at 0x3f.
		{"flexio_dev_eqe", "type", at(64, 0x01, 7), 7},
		{"flexio_dev_eqe", "sub_type", at(64, 0x03, 7), 7},
		{"flexio_dev_eqe", "event_data.cqn", at(64, 0x38, 0xff, 1, 2, 3), 0x010203}, // byte 18h of the data, 24 bits
		{"flexio_dev_eqe", "owner", at(64, 0x3f, 1), 1},
		{"flexio_dev_wqe_datagram_seg", "dc_key", at(48, 0, 1, 2, 3, 4, 5, 6, 7, 8), 0x0102030405060708},
		{"flexio_dev_wqe_datagram_seg", "qkey", at(48, 0, 1, 2, 3, 4, 5, 6, 7, 8), 0x01020304},
		{"flexio_dev_wqe_transpose_seg", "element_size", at(16, 3, 9), 9}, // dword 00h bits 7..0
		{"flexio_dev_wqe_transpose_seg", "num_of_cols", at(16, 5, 9), 9},  // dword 01h bits 22..16
		{"flexio_dev_wqe_transpose_seg", "num_of_rows", at(16, 7, 9), 9},  // dword 01h bits 6..0
		{"flexio_dev_wqe_wait_on_data_seg", "op_inv", at(16, 3, 9), 9},
		{"flexio_dev_wqe_wait_on_data_seg", "va_63_32", at(16, 8, 1, 2, 3, 4), 0x01020304},
		{"flexio_dev_wqe_wait_on_data_seg", "va_31_3_fail_act", at(16, 0xc, 1, 2, 3, 4), 0x01020304},
	} {
		v, err := Decode(tt.structure, tt.bytes)
		if err != nil || v.Uint(tt.field) != tt.want {
			t.Errorf("%s.%s: %#x, %v, want %#x", tt.structure, tt.field, v.Uint(tt.field), err, tt.want)
		}
	}
	var c CQE64
	c.load(at(64, 0x30, 1, 2, 3, 4, 5, 6, 7, 8))
	if c.Timestamp() != 0x0102030405060708 {
		t.Errorf("timestamp %#x", c.Timestamp())
	}
	for b, want := range map[OpOwn]struct {
		opcode    Opcode
		format    Format
		solicited bool
		owner     uint8
	}{0xd1: {OpReqErr, NoInline, false, 1}, 0x0c: {OpReq, Compressed, false, 0}, 0x02: {OpReq, NoInline, true, 0}, 0xfd: {OpInvalidCQE, Compressed, false, 1}} {
		if b.Opcode() != want.opcode || b.Format() != want.format || b.Solicited() != want.solicited || b.Owner() != want.owner {
			t.Errorf("op_own %#x: opcode %v, format %d, solicited %t, owner %d", uint8(b), b.Opcode(), b.Format(), b.Solicited(), b.Owner())
		}
	}
}

func TestAppendRefusesWhatDoesNotFit(t *testing.T) {
	for _, tt := range []struct {
		structure string
		v         Values
		field     string
	}{
		{"flexio_dev_wqe_eth_seg", Values{"mss": 1 << 16}, "mss"},
		{"flexio_dev_wqe_eth_seg", Values{"inline_hdrs": [3]byte{}}, "inline_hdrs"},
		{"flexio_dev_wqe_datagram_seg", Values{"dc_key": 1 << 32, "qkey": 2}, "dc_key"},
		{"flexio_dev_wqe_datagram_seg", Values{"dc_key": 0, "qkey": 2}, "dc_key"},
		{"flexio_dev_eqe", Values{"event_data": make([]byte, 28), "event_data.cqn": 1}, "event_data"},
		{"flexio_dev_sqe_seg", Values{"adres_vector": Values{"dc_key": 0, "qkey": 2}}, "adres_vector.dc_key"},
		{"flexio_dev_sqe_seg", Values{"eth": Values{"mss": 1 << 16}}, "eth.mss"},
		{"flexio_dev_sqe_seg", Values{}, "adres_vector"},
		{"flexio_qp_attr", Values{}, ""},
		{"flexio_dev_wqe_seg", Values{}, ""},
	} {
		got, err := Append([]byte("before"), tt.structure, tt.v)
		var attr *AttrError
		if !errors.As(err, &attr) || attr.Field != tt.field || string(got) != "before" {
			t.Errorf("%s %v: %q, %v, want it against %q", tt.structure, tt.v, got, err, tt.field)
		}
	}
	for _, structure := range []string{"flexio_qp_attr", "flexio_dev_sqe_seg", "flexio_dev_wqe_seg"} {
		if v, err := Decode(structure, make([]byte, 64)); !errors.Is(err, ErrAttr) {
			t.Errorf("%s: %v, %v", structure, v, err)
		}
	}
	key, err := Append(nil, "flexio_dev_wqe_datagram_seg", Values{"dc_key": 0x0102030405060708})
	if err != nil || !bytes.Equal(key, at(48, 0, 1, 2, 3, 4, 5, 6, 7, 8)) {
		t.Errorf("a DC key: %x, %v", key, err)
	}
}

func TestSQESegHoldsExactlyOneSegment(t *testing.T) {
	segments := queueTables["flexio_dev_sqe_seg"].fields
	for i, f := range segments {
		want := make([]byte, queueTables[f.of].size)
		for j := range want {
			want[j] = byte(i*16 + j + 1)
		}
		v, err := Decode(f.of, want)
		if err != nil {
			t.Fatal(err)
		}
		seg := Values{f.name: v}
		got, err := Append([]byte("before"), "flexio_dev_sqe_seg", seg)
		if err != nil || !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Errorf("%s: %x, %v, want %x behind what was there", f.name, got, err, want)
		}
		seg[segments[(i+1)%len(segments)].name] = Values{}
		if got, err := Append(nil, "flexio_dev_sqe_seg", seg); !errors.Is(err, ErrAttr) || got != nil {
			t.Errorf("%s and another: %x, %v, want %v", f.name, got, err, ErrAttr)
		}
	}
}

func TestErrReadsSyndromesOfErrorEntriesOnly(t *testing.T) {
	c := CQE64{OpOwn: 0xd0, Syndrome: SyndromeRemoteAccess, VendorErrSynd: 0x88}
	if err := c.Err(); err == nil || err.Error() != "completing a work request: remote access error (vendor 0x88)" {
		t.Errorf("got %v", err)
	}
	for op := range Opcode(16) {
		c := CQE64{OpOwn: OpOwn(op << 4), HWErrSyndrome: 1, VendorErrSynd: 2, Syndrome: SyndromeWRFlush}
		var want error
		if op == 13 || op == 14 { // MLX5_CQE_REQ_ERR, MLX5_CQE_RESP_ERR
			want = &CompletionError{Opcode: op, Syndrome: 5, Vendor: 2, HW: 1}
		}
		if got := c.Err(); !reflect.DeepEqual(got, want) {
			t.Errorf("opcode %d: %#v, want %#v", op, got, want)
		}
	}
	c.OpOwn = 0x20 // the same bytes are of the timestamp
	if err := c.Err(); err != nil {
		t.Errorf("got %v of an entry that reports none", err)
	}
}
