package flexio

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/seed"
)

// prmField is a field of mlx5_ifc_cqc_bits, as testdata/cqc.tsv lists it.
type prmField struct {
	name         string
	first, width int
}

// readCQC works the first bits out by adding up the widths.
func readCQC(t *testing.T) (fields []prmField) {
	t.Helper()
	at := 0
	for _, cols := range readTSV(t, "testdata/cqc.tsv", 2) {
		width, err := strconv.Atoi(cols[1])
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, prmField{cols[0], at, width})
		at += width
	}
	if at != 8*commandTables[cqContext].size {
		t.Fatalf("the list has %d bits, want %d", at, 8*commandTables[cqContext].size)
	}
	return fields
}

// The name, the first bit and the width of each field are compared with DPDK's header. c_eqn is as
// wide as in Linux.
func TestCQContextFieldsLieWhereDPDKHasThem(t *testing.T) {
	want := make(map[string]prmField)
	for _, f := range readCQC(t) {
		if !strings.HasPrefix(f.name, "reserved_at_") {
			want[f.name] = f
		}
	}
	eqn := want["c_eqn"]
	if eqn.first+eqn.width != 0xc0 || eqn.width != 8 {
		t.Errorf("c_eqn is at %#x, %d bits", eqn.first, eqn.width)
	}
	want["c_eqn"] = prmField{"c_eqn_or_apu_element", 0xa0, 32}
	for _, r := range commandTables[cqContext].fields {
		f, ok := want[r.name]
		if !ok || f.first != r.first || f.width != r.width {
			t.Errorf("%s is at %#x, %d bits; the header: %+v, %t", r.name, r.first, r.width, f, ok)
		}
		delete(want, r.name)
	}
	for _, f := range want {
		t.Errorf("%s is not there", f.name)
	}
}

// A ConnectX's output of QUERY_CQ is decoded, and compared with the output of NVIDIA's own parser:
// mlx5ctl, README.md "Example: Dump CQ object" (github.com/saeedtx/mlx5ctl, commit 206ee1fb3699).
// Its dump is the command's output, in which the context begins at byte 16.
func TestCQContextOfADeviceDecodesAsNVIDIADoes(t *testing.T) {
	dump, err := hex.DecodeString(strings.Join(strings.Fields(`
00 00 09 00 00 00 00 00 00 00 00 00 0a 00 00 80
00 08 00 80 00 00 00 16 00 00 00 00 00 00 00 00
00 ff ff ff 00 ff ff ff 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 01 1b b1 e6 80`), ""))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(cqContext, dump)
	want := Values{
		"st": 9, "log_cq_size": 10, "uar_page": 0x80, "cq_period": 8, "cq_max_count": 0x80, "c_eqn": 22,
		"last_notified_index": 0xffffff, "last_solicit_index": 0xffffff, "dbr_addr": 0x1_1bb1e680,
	}
	for _, f := range commandTables[cqContext].fields {
		if err != nil || got.Uint(f.name) != want.Uint(f.name) {
			t.Errorf("%s: %#x, %v, want %#x", f.name, got.Uint(f.name), err, want.Uint(f.name))
		}
	}
	again, err := Append(nil, cqContext, got)
	if err != nil || hex.EncodeToString(again) != hex.EncodeToString(dump) {
		t.Errorf("encoded again: %x, %v\nwant %x", again, err, dump)
	}
}

// Each field must accept all ones.
func TestCQContextRefusesValuesWiderThanTheirFields(t *testing.T) {
	for _, f := range commandTables[cqContext].fields {
		if f.width == 64 {
			continue // every value fits
		}
		if _, err := Append(nil, cqContext, Values{f.name: uint64(1)<<f.width - 1}); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		wide := Values{f.name: uint64(1) << f.width}
		if _, err := Append(nil, cqContext, wide); !errors.Is(err, ErrAttr) || !strings.Contains(err.Error(), f.name) {
			t.Errorf("%s with %d in %d bits: %v", f.name, 1<<f.width, f.width, err)
		}
		if got, err := Append(nil, createCQIn, Values{"cq_context": wide}); !errors.Is(err, ErrAttr) || len(got) != 0 {
			t.Errorf("%s in the command: %x, %v", f.name, got, err)
		}
	}
}

// randomContext is one with random values in all its fields.
func randomContext(t *testing.T, rng *rand.Rand) Values {
	t.Helper()
	b := make([]byte, commandTables[cqContext].size)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	v, err := Decode(cqContext, b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCreateCQInHoldsTheContext(t *testing.T) {
	rng := seed.Rand(t)
	context := randomContext(t, rng)
	got, err := Append(nil, createCQIn, Values{
		"opcode": opCreateCQ, "uid": 0x1234, "op_mod": 0x5678, "cq_context": context, "cq_umem_offset": rng.Uint64(), "cq_umem_id": rng.Uint32(), "cq_umem_valid": true,
	})
	if err != nil || len(got) != 272 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	inner, err := Decode(cqContext, got[16:])
	if err != nil || !reflect.DeepEqual(inner, context) {
		t.Errorf("%+v in the command, %v, want %+v", inner, err, context)
	}
}
