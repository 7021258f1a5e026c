package flexio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"
)

// plainCQ is a CQ of which everything that can be is 0.
func plainCQ() Values {
	return Values{"element_type": "none", "cq_ring_qmem": Values{"memtype": memHost}, "cq_dbr_daddr": 0x10000}
}

// placement has a heap of 64 KiB from 0x10000 on.
var placement = CQPlacement{HeapBase: 0x10000, HeapSize: 0x10000}

// attrBits are attributes and the bits of the command that each sets: the dword, from the
// beginning of the context, or of the command where that is said, and the mask. They were
// worked out by hand from the bit numbers of mlx5_prm.h.
var attrBits = []struct {
	field  string
	change Values
	place  func(*CQPlacement)
	dwords map[int]uint32
}{
	{"cc", Values{"cc": true}, nil, map[int]uint32{0: 1 << 20}},
	{"overrun_ignore", Values{"overrun_ignore": true}, nil, map[int]uint32{0: 1 << 17}},
	{"always_armed", Values{"always_armed": true}, nil, map[int]uint32{0: 1 << 7}},
	{"no_arm", Values{"no_arm": true}, nil, nil},
	{"uar_base_addr", Values{"uar_base_addr": 1}, nil, nil},
	{"log_cq_depth", Values{"log_cq_depth": 31}, nil, map[int]uint32{3: 31 << 24}},
	{"uar_id", Values{"uar_id": 0xabcdef}, nil, map[int]uint32{3: 0xabcdef}},
	{"cq_period", Values{"cq_period": 0xabc}, nil, map[int]uint32{4: 0xabc << 16}},
	{"cq_max_count", Values{"cq_max_count": 0xabcd}, nil, map[int]uint32{4: 0xabcd}},
	{"cq_period_mode", Values{"cq_period_mode": "CQE"}, nil, map[int]uint32{0: 1 << 15}},
	{"cqe_comp_type", Values{"cqe_comp_type": "basic"}, nil, map[int]uint32{0: 1 << 14}},
	{"cqe_comp_type", Values{"cqe_comp_type": Enhanced}, nil, map[int]uint32{0: 1<<14 | 1}},
	{"cqe_comp_format", Values{"cqe_comp_type": Basic, "cqe_comp_format": MiniCsumStrIdx}, nil, map[int]uint32{0: 1<<14 | 3<<12}},
	{"cqe_comp_format", Values{"cqe_comp_type": Basic, "cqe_comp_format": MiniL34HStrIdx}, nil, map[int]uint32{0: 1 << 14, 2: 1 << 2}},
	{"thread", Values{"element_type": "thread", "thread": object24}, nil, map[int]uint32{0: 1 << 24, 5: object24}},
	{"element_type", Values{"element_type": "EQ", "emulated_eqn": 0x1ff}, nil, map[int]uint32{0: 1<<24 | 2<<4, 5: 0x1ff}},
	{"emulated_eqn", Values{"element_type": "emulated EQ", "emulated_eqn": 0x1ff}, nil, map[int]uint32{5: 0x1ff}},
	{"element_type", nil, func(p *CQPlacement) { p.EQN = 22 }, map[int]uint32{5: 22}},
	{"cq_dbr_daddr", Values{"cq_dbr_daddr": 0x1fff8}, nil, map[int]uint32{15: 0xfff8}},
	{"cq_dbr_daddr", nil, func(p *CQPlacement) { p.HeapUMEMID = 0xabcdef01 }, map[int]uint32{1: 0xabcdef01}},
	// Behind the context: the umem of the ring.
	{"cq_ring_qmem", Values{"cq_ring_qmem": Values{"memtype": memHost, "humem_offset": 0x1_0000_0040}}, nil, map[int]uint32{16: 1, 17: 0x40}},
	{"cq_ring_qmem", Values{"cq_ring_qmem": Values{"memtype": memHost, "umem_id": uint32(0xabcdef01)}}, nil, map[int]uint32{18: 0xabcdef01}},
	{"cq_ring_qmem", Values{"cq_ring_qmem": Values{"daddr": 0x10040}}, nil, map[int]uint32{17: 0x40}},
	{"cq_ring_qmem", Values{"cq_ring_qmem": Values{"daddr": 0x10000}}, func(p *CQPlacement) { p.HeapUMEMID = 9 }, map[int]uint32{1: 9, 18: 9}},
}

// createChanged makes the command of a plain CQ with other values.
func createChanged(change Values, place func(*CQPlacement)) ([]byte, error) {
	v, p := plainCQ(), placement
	maps.Copy(v, change)
	if place != nil {
		place(&p)
	}
	return CreateCQ(v, p)
}

// One attribute changes at a time.
func TestCQAttrSetsOnlyItsOwnBits(t *testing.T) {
	before, err := createChanged(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	// CREATE_CQ, and the valid bits of the umems of doorbell record and ring.
	want := make([]byte, 272)
	want[0], want[16], want[0x2e0/8] = 0x04, 0x02, 0x80
	if !bytes.Equal(before, want) {
		t.Errorf("a plain CQ:\n%x\nwant\n%x", before, want)
	}
	covered := make(map[string]bool)
	for _, tt := range attrBits {
		got, err := createChanged(tt.change, tt.place)
		if err != nil {
			t.Errorf("%s: %v", tt.field, err)
			continue
		}
		want := bytes.Clone(before)
		for dword, bits := range tt.dwords {
			w := want[16+4*dword:]
			binary.BigEndian.PutUint32(w, binary.BigEndian.Uint32(w)^bits)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s:\n%x\nwant\n%x", tt.field, got[:96], want[:96])
		}
		covered[tt.field] = true
	}
	for _, f := range attributeTables["flexio_cq_attr"].fields {
		if !covered[f.name] {
			t.Errorf("%s: no row", f.name)
		}
	}
}

// It also refuses what Validate refuses.
func TestCreateCQRefusesAddressesOutsideTheHeap(t *testing.T) {
	if in, err := CreateCQ(plainCQ(), CQPlacement{}); err == nil || in != nil {
		t.Errorf("no heap: %x, %v", in, err)
	}
	ring := Values{"daddr": 0x10000}
	for name, tt := range map[string]struct {
		change Values
		field  string
	}{
		"ring before the heap":  {Values{"cq_ring_qmem": Values{"daddr": 0xffc0}}, "cq_ring_qmem.daddr"},
		"ring behind the heap":  {Values{"cq_ring_qmem": Values{"daddr": 0x20000}}, "cq_ring_qmem.daddr"},
		"ring far behind":       {Values{"cq_ring_qmem": Values{"daddr": 0x30000}}, "cq_ring_qmem.daddr"},
		"ring beyond the heap":  {Values{"log_cq_depth": 11, "cq_ring_qmem": ring}, "cq_ring_qmem.daddr"},
		"record before":         {Values{"cq_ring_qmem": ring, "cq_dbr_daddr": 0xfff8}, "cq_dbr_daddr"},
		"record behind":         {Values{"cq_ring_qmem": ring, "cq_dbr_daddr": 0x20000}, "cq_dbr_daddr"},
		"a collapsed one, full": {Values{"cc": true, "log_cq_depth": 10, "cq_ring_qmem": ring}, ""},
		"a period too long":     {Values{"cq_period": 5000, "cq_ring_qmem": ring}, "cq_period"},
		"no such attribute":     {Values{"collapsed": true}, "collapsed"},
	} {
		_, err := createChanged(tt.change, nil)
		var attr *AttrError
		if tt.field == "" && err == nil {
			continue
		}
		if !errors.As(err, &attr) || attr.Field != tt.field {
			t.Errorf("%s: %v, want it against %s", name, err, tt.field)
		}
	}
}

// A program of the host has the ring and the doorbell record in one umem, and no DPA.
func TestCollapsedQueueOfTheHostIsInOneUMEM(t *testing.T) {
	const base = 1 << 32
	attr := Values{
		"log_cq_depth": 4, "element_type": "none", "uar_id": 0x77, "cc": true, "overrun_ignore": true,
		"cq_ring_qmem": Values{"memtype": "FLEXIO_MEMTYPE_HOST", "humem_offset": 0x40, "umem_id": 5}, "cq_dbr_daddr": uint64(base + 0x1000),
	}
	if err := Validate("flexio_cq_attr", attr, "collapsed"); err != nil {
		t.Fatal(err)
	}
	in, err := CreateCQ(attr, CQPlacement{EQN: 3, HeapBase: base, HeapSize: 0x2000, HeapUMEMID: 5})
	if err != nil {
		t.Fatal(err)
	}
	v, err := Decode(createCQIn, in)
	if err != nil {
		t.Fatal(err)
	}
	context := v["cq_context"].(Values)
	for name, want := range map[string]uint64{
		"cc": 1, "oi": 1, "log_cq_size": 4, "uar_page": 0x77, "c_eqn": 3, "ext_element": 0, "dbr_umem_valid": 1, "dbr_umem_id": 5, "dbr_addr": 0x1000,
	} {
		if context.Uint(name) != want {
			t.Errorf("%s is %#x, want %#x", name, context.Uint(name), want)
		}
	}
	for name, want := range map[string]uint64{"opcode": 0x400, "cq_umem_valid": 1, "cq_umem_id": 5, "cq_umem_offset": 0x40} {
		if v.Uint(name) != want {
			t.Errorf("%s is %#x, want %#x", name, v.Uint(name), want)
		}
	}
}

// The C compiler encodes contexts with the macros of the installed mlx5dv.h and the widths of
// DPDK's header.
func TestCQContextEqualsDEVXSet(t *testing.T) {
	need.Tool(t, "cc")
	need.Header(t, "infiniband/mlx5dv.h")
	rng := seed.Rand(t)
	var c bytes.Buffer
	c.WriteString("#include <infiniband/mlx5dv.h>\n#include <stdio.h>\n#include <string.h>\nstruct mlx5_ifc_cqc_bits {\n")
	eqn := false // c_eqn and the reserved bits before it are one field in Linux
	for _, f := range readCQC(t) {
		switch f.name {
		case "reserved_at_a0":
			eqn = true
		case "c_eqn":
			fmt.Fprintf(&c, "\tuint8_t c_eqn[32];\n")
		default:
			fmt.Fprintf(&c, "\tuint8_t %s[%d];\n", f.name, f.width)
		}
	}
	if !eqn {
		t.Fatal("no reserved_at_a0")
	}
	c.WriteString("};\nint main(void) { uint8_t b[64]; int i;\n")
	var want []string
	for range 40 {
		ctx := randomContext(t, rng)
		b, err := Append(nil, cqContext, ctx)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("%x", b))
		c.WriteString("memset(b, 0, 64);\n")
		for _, f := range readCQC(t) {
			if !strings.HasPrefix(f.name, "reserved_at_") {
				set := "DEVX_SET"
				if f.width == 64 {
					set = "DEVX_SET64"
				}
				fmt.Fprintf(&c, "%s(cqc, b, %s, %#x);\n", set, f.name, ctx.Uint(f.name))
			}
		}
		c.WriteString("for (i = 0; i < 64; i++) printf(\"%02x\", b[i]);\nputs(\"\");\n")
	}
	c.WriteString("return 0; }\n")
	dir := t.TempDir()
	src, exe := filepath.Join(dir, "cqc.c"), filepath.Join(dir, "cqc")
	if err := os.WriteFile(src, c.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-std=gnu11", "-O1", "-o", exe, src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(out))
	if len(got) != len(want) {
		t.Fatalf("%d contexts, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("context %d: mlx5dv.h has\n%s, this package\n%s", i, got[i], want[i])
		}
	}
	t.Logf("%d contexts of all fields, the same bytes", len(want))
}
