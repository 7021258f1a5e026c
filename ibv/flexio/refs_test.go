package flexio

import (
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// refField is a field of the reference, as testdata/reference004.tsv lists it.
type refField struct{ strct, name, ctype, place string }

func (f refField) String() string { return f.strct + "." + f.name }

// readRefs reads the list, which was made from the reference once.
func readRefs(t *testing.T) []refField {
	t.Helper()
	var fields []refField
	for _, cols := range readTSV(t, "testdata/reference004.tsv", 4) {
		fields = append(fields, refField{cols[0], cols[1], cols[2], cols[3]})
	}
	return fields
}

func readTSV(t *testing.T, path string, columns int) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cols := strings.Split(line, "\t")
		if len(cols) != columns {
			t.Fatalf("%s: %q has %d columns, want %d", path, line, len(cols), columns)
		}
		rows = append(rows, cols)
	}
	return rows
}

// goField is where a field of the reference is in this package.
type goField struct {
	text string // as docs/flexio.md has it
	typ  string
	at   int // offset in queue memory, -1 for a field without one
	size int
}

// views are fields of the reference that are another reading of bytes that have fields
// of their own here, which Go reads by a method.
var views = map[string]goField{
	"flexio_dev_cqe64.qpn":               {"SopRdrop`, `QPN24`, `QPN()", "uint32", 0x38, 4},
	"flexio_dev_eqe.event_data":          {"EventRsvd`, `EventCQN", "[6]uint32, uint32", 0x20, 28},
	"flexio_dev_wqe_datagram_seg.dc_key": {"DCKey()", "uint64", 0, 8},
}

// nested are names that the reference gives to fields of event_data, of which one
// is also a name in the structure around it.
var nested = map[string]string{"flexio_dev_eqe.cqn __be32": "event_data.cqn", "flexio_dev_eqe.rsvd00 __be32[6]": "event_data.rsvd00"}

// find returns the field of this package for a field of the reference.
func find(f refField) (goField, error) {
	if v, ok := views[f.String()]; ok {
		return v, nil
	}
	typ, ok := goTypes[f.strct]
	if !ok {
		return goField{}, fmt.Errorf("%s: no type here", f.strct)
	}
	want := f.name
	if n, ok := nested[f.String()+" "+f.ctype]; ok {
		want = n
	}
	queue := strings.HasPrefix(f.strct, "flexio_dev_") && binarySize(typ) > 0
	for _, sf := range reflect.VisibleFields(typ) {
		if sf.Tag.Get("ref") != want {
			continue
		}
		g := goField{text: sf.Name, typ: strings.ReplaceAll(sf.Type.String(), "flexio.", ""), at: -1}
		if queue {
			g.at, g.size = offsets(reflect.New(typ).Elem().Interface())[sf.Name], int(sf.Type.Size())
		}
		return g, nil
	}
	return goField{}, fmt.Errorf("%s: no field here", f)
}

// binarySize is the size of a structure of queue memory, 0 for any other.
func binarySize(typ reflect.Type) int {
	for _, s := range structs {
		if reflect.TypeOf(s.v) == typ {
			return s.size
		}
	}
	return 0
}

// The list must also have every field here whose tag names the reference.
func TestEveryFieldOfTheReferenceIsDeclared(t *testing.T) {
	refs := readRefs(t)
	if len(refs) != 229 {
		t.Errorf("the list has %d fields, the reference 229", len(refs))
	}
	listed, used := make(map[string]bool), make(map[string]bool)
	for _, f := range refs {
		if _, err := find(f); err != nil {
			t.Error(err)
		}
		name := f.String()
		if n, ok := nested[name+" "+f.ctype]; ok {
			name = f.strct + "." + n
		}
		listed[name], used[f.strct] = true, true
	}
	for strct, typ := range goTypes {
		if !used[strct] {
			t.Errorf("%s is not in the reference", strct)
		}
		for _, sf := range reflect.VisibleFields(typ) {
			if ref := sf.Tag.Get("ref"); ref == "" || !listed[strct+"."+ref] {
				t.Errorf("%s.%s: the reference has no field %q in %s", typ.Name(), sf.Name, ref, strct)
			}
		}
	}
	t.Logf("%d fields of %d structures", len(refs), len(goTypes))
}

// inDwords are the structures whose places the reference counts in dwords; of the
// others it counts them in bytes.
var inDwords = map[string]bool{
	"flexio_dev_cqe64": true, "flexio_dev_wqe_atomic_seg": true, "flexio_dev_wqe_ctrl_seg": true, "flexio_dev_wqe_eth_seg": true,
	"flexio_dev_wqe_inline_data_seg": true, "flexio_dev_wqe_inline_send_data_seg": true, "flexio_dev_wqe_mem_ptr_send_data_seg": true,
	"flexio_dev_wqe_rcv_data_seg": true, "flexio_dev_wqe_rdma_seg": true, "flexio_dev_wqe_transpose_seg": true,
}

// misplaced are the places that the reference gives and that cannot be, each with where
// the field is and why. docs/flexio.md tells of them.
var misplaced = map[string]struct {
	at, size int
	why      string
}{
	"flexio_dev_wqe_wait_on_data_seg.va_31_3_fail_act": {0xc, 4, "8h..fh overlaps va_63_32, and has twice its size"},
	"flexio_dev_wqe_datagram_seg.rgid":                 {0x20, 16, "20h..2Ch ends where the last dword begins"},
	"flexio_dev_wqe_transpose_seg.rsvd1":               {4, 1, "01h alone, beside num_of_cols in bits 16..22"},
	"flexio_dev_wqe_transpose_seg.rsvd2":               {6, 1, "01h alone, beside num_of_rows in bits 0..6"},
}

// The places are worked out from the reference's own words.
func TestFieldsLieWhereTheReferenceHasThem(t *testing.T) {
	checked := 0
	for _, f := range readRefs(t) {
		if f.place == "-" {
			continue
		}
		at, size, err := place(f)
		if err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		if f.ctype != "" && strings.HasPrefix(nested[f.String()+" "+f.ctype], "event_data.") {
			at += 0x20 // the union's own beginning
		}
		got, err := find(f)
		if err != nil {
			t.Error(err)
			continue
		}
		if wrong, ok := misplaced[f.String()]; ok {
			if at == wrong.at && size == wrong.size {
				t.Errorf("%s: %s is right after all", f, f.place)
			}
			at, size = wrong.at, wrong.size
		}
		if size == 0 {
			size = got.size // a place without an end
		}
		checked++
		if got.at != at || got.size != size {
			t.Errorf("%s: bytes %#x to %#x, the reference says %q: %#x to %#x", f, got.at, got.at+got.size, f.place, at, at+size)
		}
	}
	if checked != 85 {
		t.Errorf("%d places were compared, the reference gives 85", checked)
	}
}

// place works out the bytes of "05h 16..31" and the like: where they begin, and how many
// where that is said. Bits are counted from the lowest of the dword in memory order, or,
// of a field of one byte whose place is in bytes, from its lowest.
func place(f refField) (at, size int, err error) {
	where, bits, _ := strings.Cut(f.place, " ")
	first, last, isRange := strings.Cut(where, "..")
	if next, ok := strings.CutSuffix(bits, "h"); ok { // "0h 2h"
		last, isRange, bits = next, true, ""
	}
	unit := 1
	if inDwords[f.strct] {
		unit = 4
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(first, "h"), 16, 8)
	if err != nil {
		return 0, 0, err
	}
	at = int(n) * unit
	if isRange {
		m, err := strconv.ParseUint(strings.TrimSuffix(last, "h"), 16, 8)
		if err != nil {
			return 0, 0, err
		}
		return at, (int(m-n) + 1) * unit, nil
	}
	if bits == "" || bits == "24 lsb" {
		return at, 0, nil
	}
	low, high := 32, 0
	for _, part := range strings.Split(bits, ",") {
		a, b, ok := strings.Cut(part, "..")
		if !ok {
			b = a
		}
		for _, s := range []string{a, b} {
			v, err := strconv.Atoi(s)
			if err != nil {
				return 0, 0, err
			}
			low, high = min(low, v), max(high, v)
		}
	}
	if unit == 1 && high < 8 && f.ctype == "uint8_t" {
		return at, 1, nil
	}
	return at + (31-high)/8, (31-low)/8 - (31-high)/8 + 1, nil
}
