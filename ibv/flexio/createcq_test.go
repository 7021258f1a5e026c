package flexio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"
)

// plainCQ is a CQ of which everything that can be is 0.
var plainCQ = CQAttr{ElementType: CQElementNone, CQRingQMem: QMem{MemType: MemTypeHost}, CQDBRDAddr: 0x10000}

// placement has a heap of 64 KiB from 0x10000 on.
var placement = CQPlacement{Heap: HeapMemInfo{BaseAddr: 0x10000, Size: 0x10000}}

// attrBits are attributes and the bits of the command that each sets: the dword, from the
// beginning of the context, or of the command where that is said, and the mask. They were
// worked out by hand from the bit numbers of mlx5_prm.h.
var attrBits = []struct {
	field  string
	change func(*CQAttr, *CQPlacement)
	dwords map[int]uint32
}{
	{"cc", func(a *CQAttr, _ *CQPlacement) { a.CC = true }, map[int]uint32{0: 1 << 20}},
	{"overrun_ignore", func(a *CQAttr, _ *CQPlacement) { a.OverrunIgnore = true }, map[int]uint32{0: 1 << 17}},
	{"always_armed", func(a *CQAttr, _ *CQPlacement) { a.AlwaysArmed = true }, map[int]uint32{0: 1 << 7}},
	{"no_arm", func(a *CQAttr, _ *CQPlacement) { a.NoArm = true }, nil},
	{"uar_base_addr", func(a *CQAttr, _ *CQPlacement) { a.UARBaseAddr = 1 }, nil},
	{"log_cq_depth", func(a *CQAttr, _ *CQPlacement) { a.LogCQDepth = 31 }, map[int]uint32{3: 31 << 24}},
	{"uar_id", func(a *CQAttr, _ *CQPlacement) { a.UARID = 0xabcdef }, map[int]uint32{3: 0xabcdef}},
	{"cq_period", func(a *CQAttr, _ *CQPlacement) { a.CQPeriod = 0xabc }, map[int]uint32{4: 0xabc << 16}},
	{"cq_max_count", func(a *CQAttr, _ *CQPlacement) { a.CQMaxCount = 0xabcd }, map[int]uint32{4: 0xabcd}},
	{"cq_period_mode", func(a *CQAttr, _ *CQPlacement) { a.CQPeriodMode = CQPeriodFromCQE }, map[int]uint32{0: 1 << 15}},
	{"cqe_comp_type", func(a *CQAttr, _ *CQPlacement) { a.CQECompType = Basic }, map[int]uint32{0: 1 << 14}},
	{"cqe_comp_type", func(a *CQAttr, _ *CQPlacement) { a.CQECompType = Enhanced }, map[int]uint32{0: 1<<14 | 1}},
	{"cqe_comp_format", func(a *CQAttr, _ *CQPlacement) { a.CQECompType, a.CQECompFormat = Basic, MiniCsumStrIdx }, map[int]uint32{0: 1<<14 | 3<<12}},
	{"cqe_comp_format", func(a *CQAttr, _ *CQPlacement) { a.CQECompType, a.CQECompFormat = Basic, MiniL34HStrIdx }, map[int]uint32{0: 1 << 14, 2: 1 << 2}},
	{"thread", func(a *CQAttr, _ *CQPlacement) { a.ElementType, a.Thread = CQElementThread, new(uint32(object24)) }, map[int]uint32{0: 1 << 24, 5: 0x123456}},
	{"element_type", func(a *CQAttr, _ *CQPlacement) { a.ElementType, a.EmulatedEQN = CQElementEQ, 0x1ff }, map[int]uint32{0: 1<<24 | 2<<4, 5: 0x1ff}},
	{"emulated_eqn", func(a *CQAttr, _ *CQPlacement) { a.ElementType, a.EmulatedEQN = CQElementEmulatedEQ, 0x1ff }, map[int]uint32{5: 0x1ff}},
	{"element_type", func(_ *CQAttr, p *CQPlacement) { p.EQN = 22 }, map[int]uint32{5: 22}},
	{"cq_dbr_daddr", func(a *CQAttr, _ *CQPlacement) { a.CQDBRDAddr = 0x1fff8 }, map[int]uint32{15: 0xfff8}},
	{"cq_dbr_daddr", func(_ *CQAttr, p *CQPlacement) { p.HeapUMEMID = 0xabcdef01 }, map[int]uint32{1: 0xabcdef01}},
	// Behind the context: the umem of the ring.
	{"cq_ring_qmem", func(a *CQAttr, _ *CQPlacement) { a.CQRingQMem.HUMEMOffset = 0x1_0000_0040 }, map[int]uint32{16: 1, 17: 0x40}},
	{"cq_ring_qmem", func(a *CQAttr, _ *CQPlacement) { a.CQRingQMem.UMEMID = 0xabcdef01 }, map[int]uint32{18: 0xabcdef01}},
	{"cq_ring_qmem", func(a *CQAttr, _ *CQPlacement) { a.CQRingQMem = QMem{DAddr: 0x10040} }, map[int]uint32{17: 0x40}},
	{"cq_ring_qmem", func(a *CQAttr, p *CQPlacement) { a.CQRingQMem, p.HeapUMEMID = QMem{DAddr: 0x10000}, 9 }, map[int]uint32{1: 9, 18: 9}},
}

// One attribute changes at a time.
func TestCQAttrSetsOnlyItsOwnBits(t *testing.T) {
	plain, err := plainCQ.CreateCQ(placement)
	if err != nil {
		t.Fatal(err)
	}
	before, err := plain.Append(nil)
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
		a, p := plainCQ, placement
		tt.change(&a, &p)
		in, err := a.CreateCQ(p)
		if err != nil {
			if tt.field == "log_cq_depth" {
				t.Fatal(err)
			}
			t.Errorf("%s: %v", tt.field, err)
			continue
		}
		got, err := in.Append(nil)
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
	ring := QMem{DAddr: 0x10000}
	if in, err := plainCQ.CreateCQ(CQPlacement{}); err == nil || in.fields != nil {
		t.Errorf("no heap: %+v, %v", in, err)
	}
	for name, tt := range map[string]struct {
		a     CQAttr
		field string
	}{
		"ring before the heap":  {CQAttr{ElementType: CQElementNone, CQRingQMem: QMem{DAddr: 0xffc0}, CQDBRDAddr: 0x10000}, "cq_ring_qmem.daddr"},
		"ring behind the heap":  {CQAttr{ElementType: CQElementNone, CQRingQMem: QMem{DAddr: 0x20000}, CQDBRDAddr: 0x10000}, "cq_ring_qmem.daddr"},
		"ring far behind":       {CQAttr{ElementType: CQElementNone, CQRingQMem: QMem{DAddr: 0x30000}, CQDBRDAddr: 0x10000}, "cq_ring_qmem.daddr"},
		"ring beyond the heap":  {CQAttr{ElementType: CQElementNone, LogCQDepth: 11, CQRingQMem: ring, CQDBRDAddr: 0x10000}, "cq_ring_qmem.daddr"},
		"record before":         {CQAttr{ElementType: CQElementNone, CQRingQMem: ring, CQDBRDAddr: 0xfff8}, "cq_dbr_daddr"},
		"record behind":         {CQAttr{ElementType: CQElementNone, CQRingQMem: ring, CQDBRDAddr: 0x20000}, "cq_dbr_daddr"},
		"a collapsed one, full": {CQAttr{ElementType: CQElementNone, CC: true, LogCQDepth: 10, CQRingQMem: ring, CQDBRDAddr: 0x10000}, ""},
		"a period too long":     {CQAttr{ElementType: CQElementNone, CQPeriod: 5000, CQRingQMem: ring, CQDBRDAddr: 0x10000}, "cq_period"},
	} {
		_, err := tt.a.CreateCQ(placement)
		var attr *AttrError
		if tt.field == "" && err == nil {
			continue
		}
		if !errors.As(err, &attr) || attr.Field != tt.field {
			t.Errorf("%s: %v, want it against %s", name, err, tt.field)
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
