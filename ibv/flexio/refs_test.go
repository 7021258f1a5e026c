package flexio

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// refField is a field of the reference, as testdata/reference004.tsv lists it.
type refField struct{ strct, name, ctype, place string }

func (f refField) String() string { return f.strct + "." + f.name }

// readRefs reads the list, which was made from the reference once. The reference gives to fields of the union event_data
// names that the structure around it has, too: here they are behind a dot.
func readRefs(t *testing.T) []refField {
	t.Helper()
	inUnion := map[string]bool{"flexio_dev_eqe.cqn __be32": true, "flexio_dev_eqe.rsvd00 __be32[6]": true}
	var fields []refField
	for _, cols := range readTSV(t, "testdata/reference004.tsv", 4) {
		f := refField{cols[0], cols[1], cols[2], cols[3]}
		if inUnion[f.String()+" "+f.ctype] {
			f.name = "event_data." + f.name
		}
		fields = append(fields, f)
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

// row returns the row of a field of the reference.
func row(t *testing.T, f refField) field {
	t.Helper()
	table, err := lookup(f.strct)
	if err != nil {
		t.Fatal(err)
	}
	r, ok := table.find(f.name)
	if !ok {
		t.Fatalf("%s: no row", f)
	}
	return r
}

// The tables have the fields of the reference and no others, with its words for their places and types.
func TestTablesHaveTheFieldsOfTheReference(t *testing.T) {
	refs := readRefs(t)
	if len(refs) != 229 {
		t.Errorf("the list has %d fields, the reference 229", len(refs))
	}
	listed := make(map[string]bool)
	for _, f := range refs {
		listed[f.String()] = true
		want := f.place
		if _, ok := attributeTables[f.strct]; ok || strings.HasPrefix(f.ctype, "struct ") {
			want = f.ctype
		} else if f.place == "-" {
			want = ""
		}
		if r := row(t, f); r.ref != want {
			t.Errorf("%s: the table has %q, the reference %q", f, r.ref, want)
		}
	}
	structures := 0
	for _, tables := range []map[string]table{queueTables, attributeTables} {
		structures += len(tables)
		for structure, table := range tables {
			for i, f := range table.fields {
				if !listed[structure+"."+f.name] {
					t.Errorf("%s.%s is not in the reference", structure, f.name)
				}
				if slices.ContainsFunc(table.fields[:i], func(o field) bool { return o.name == f.name }) {
					t.Errorf("%s.%s has two rows", structure, f.name)
				}
			}
		}
	}
	t.Logf("%d fields of %d structures", len(refs), structures)
}

// typeBits is the number of bits of a number with that type of C, 0 for another type.
func typeBits(ctype string) int {
	switch ctype {
	case "bool":
		return 1
	case "uint8_t":
		return 8
	case "uint16_t", "__be16":
		return 16
	case "uint32_t", "__be32", "int":
		return 32
	case "uint64_t", "__be64", "size_t", "uintptr_t", "flexio_uintptr_t":
		return 64
	}
	switch {
	case strings.HasSuffix(ctype, "*"): // as an address
		return 64
	case strings.HasPrefix(ctype, "enum "):
		return 32
	}
	return 0
}

// A row is of the kind that the reference's type allows, and no number is wider than its type.
func TestAttributesHaveTheTypesOfTheReference(t *testing.T) {
	enums := []string{"flexio_cq_attr.element_type", "flexio_qp_attr.rq_type", "flexio_msg_stream_attr_t.level"} // numbers for C
	plain := []string{"flexio_app_select_attr.hw_model_id", "flexio_msg_stream_attr_t.tracer_mode"}              // without values in the reference, and never used
	for _, f := range readRefs(t) {
		if _, ok := attributeTables[f.strct]; !ok {
			continue
		}
		r := row(t, f)
		isEnum := strings.HasPrefix(f.ctype, "enum ") || slices.Contains(enums, f.String())
		pointer := strings.HasSuffix(f.ctype, "*")
		ok := false
		switch r.kind {
		case number:
			ok = slices.Contains(plain, f.String()) || r.names == nil && !isEnum && r.width <= typeBits(f.ctype) || r.names != nil && isEnum
		case inner:
			ok = f.ctype == "struct "+r.of
		case text:
			ok = f.ctype == "const char *"
		case object, list:
			ok = pointer
		case octets:
			ok = pointer || f.ctype == "ibv_gid"
		case ignored:
			ok = f.name == "uar" || f.name == "ops_flag" // the deprecated ones
		}
		if !ok {
			t.Errorf("%s: %+v, the reference has %s", f, r, f.ctype)
		}
	}
}

// readings are fields that share their bytes with other fields.
var readings = map[string]bool{"flexio_dev_cqe64.qpn": true, "flexio_dev_eqe.event_data": true, "flexio_dev_wqe_datagram_seg.dc_key": true}

// Each bit of a queue structure has a row, and one only but for the readings. So no bit is lost, and the rows are in the
// order of memory.
func TestRowsOfQueueStructuresLeaveNoHole(t *testing.T) {
	for structure, table := range queueTables {
		at := 0
		for _, f := range table.fields {
			if readings[structure+"."+f.name] || table.union {
				continue
			}
			if structure == "flexio_dev_eqe" && f.name == "event_data.cqn" {
				at += 8 // of a word whose lower 24 bits are a field
			}
			if f.first != at {
				t.Errorf("%s.%s begins at bit %#x, want %#x", structure, f.name, f.first, at)
			}
			at = f.first + f.width
		}
		if at != 8*table.size {
			t.Errorf("%s has %d bits, want %d", structure, at, 8*table.size)
		}
	}
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
		if strings.HasPrefix(f.name, "event_data.") {
			at += 0x20 // the union's own beginning
		}
		got := row(t, f)
		if wrong, ok := misplaced[f.String()]; ok {
			if at == wrong.at && size == wrong.size {
				t.Errorf("%s: %s is right after all", f, f.place)
			}
			at, size = wrong.at, wrong.size
		}
		if size == 0 {
			size = got.width / 8 // a place without an end
		}
		checked++
		if got.first != 8*at || got.width != 8*size {
			t.Errorf("%s: bits %#x to %#x, the reference says %q: %#x to %#x", f, got.first, got.first+got.width, f.place, 8*at, 8*(at+size))
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
	if bits == "24 lsb" {
		return at + 1, 3, nil
	}
	if bits == "" {
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
