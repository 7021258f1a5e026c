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
	if at != 8*cqContextSize {
		t.Fatalf("the list has %d bits, want %d", at, 8*cqContextSize)
	}
	return fields
}

// The name, the first bit and the width of each field are compared with DPDK's header. c_eqn is as
// wide as in Linux.
func TestCQContextFieldsLieWhereDPDKHasThem(t *testing.T) {
	want := make(map[string]prmField)
	for _, f := range readCQC(t) {
		if !strings.HasPrefix(f.name, "reserved_at_") {
			want[strings.ReplaceAll(f.name, "_", "")] = f
		}
	}
	eqn := want["ceqn"]
	if eqn.first+eqn.width != 0xc0 || eqn.width != 8 {
		t.Errorf("c_eqn is at %#x, %d bits", eqn.first, eqn.width)
	}
	want["ceqn"] = prmField{"c_eqn_or_apu_element", 0xa0, 32}
	typ := reflect.TypeFor[CQContext]()
	for _, sf := range reflect.VisibleFields(typ) {
		f, ok := want[strings.ToLower(sf.Name)]
		first, width := bitsOf(sf)
		if !ok || f.first != first || f.width != width {
			t.Errorf("%s is at %#x, %d bits; the header: %+v, %t", sf.Name, first, width, f, ok)
		}
		delete(want, strings.ToLower(sf.Name))
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
	got, err := DecodeCQContext(dump)
	want := CQContext{
		ST: CQArmed, LogCQSize: 10, UARPage: 0x80, CQPeriod: 8, CQMaxCount: 0x80, CEQN: 22,
		LastNotifiedIndex: 0xffffff, LastSolicitIndex: 0xffffff, DBRAddr: 0x1_1bb1e680,
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	again, err := got.Append(nil)
	if err != nil || hex.EncodeToString(again) != hex.EncodeToString(dump) {
		t.Errorf("encoded again: %x, %v\nwant %x", again, err, dump)
	}
	if _, err := DecodeCQContext(dump[:63]); !errors.Is(err, ErrShort) {
		t.Errorf("63 bytes: %v, want %v", err, ErrShort)
	}
}

// Each field must accept all ones.
func TestCQContextRefusesValuesWiderThanTheirFields(t *testing.T) {
	typ := reflect.TypeFor[CQContext]()
	for _, sf := range reflect.VisibleFields(typ) {
		_, width := bitsOf(sf)
		if sf.Type.Kind() == reflect.Bool || width == int(8*sf.Type.Size()) {
			continue // every value fits
		}
		var c CQContext
		f := reflect.ValueOf(&c).Elem().FieldByIndex(sf.Index)
		f.SetUint(1<<width - 1)
		if _, err := c.Append(nil); err != nil {
			t.Errorf("%s: %v", sf.Name, err)
		}
		f.SetUint(1 << width)
		if _, err := c.Append(nil); !errors.Is(err, ErrAttr) || !strings.Contains(err.Error(), sf.Name) {
			t.Errorf("%s with %d in %d bits: %v", sf.Name, 1<<width, width, err)
		}
		in := CreateCQIn{CQContext: c}
		if got, err := in.Append(nil); !errors.Is(err, ErrAttr) || len(got) != 0 {
			t.Errorf("%s in the command: %x, %v", sf.Name, got, err)
		}
	}
}

// Any 64 bytes are a context. Encoding it again must give the bits of its fields.
func FuzzCQContext(f *testing.F) {
	var named CQContext
	v := reflect.ValueOf(&named).Elem()
	for _, sf := range reflect.VisibleFields(v.Type()) {
		if _, width := bitsOf(sf); sf.Type.Kind() == reflect.Bool {
			v.FieldByIndex(sf.Index).SetBool(true)
		} else {
			v.FieldByIndex(sf.Index).SetUint(1<<width - 1)
		}
	}
	mask, err := named.Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(make([]byte, 64))
	f.Add(mask)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCQContext(b)
		if len(b) < 64 {
			if !errors.Is(err, ErrShort) {
				t.Errorf("%d bytes: %v", len(b), err)
			}
			return
		}
		got, err := c.Append(nil)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		for i, m := range mask {
			if got[i] != b[i]&m {
				t.Fatalf("byte %d: %#02x became %#02x, fields have %#02x of it", i, b[i], got[i], m)
			}
		}
	})
}

// randomContext is one with random values in all its fields.
func randomContext(rng *rand.Rand) (c CQContext) {
	b := make([]byte, cqContextSize)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	loadBits(b, &c)
	return c
}

func TestCreateCQInHoldsTheContext(t *testing.T) {
	rng := seed.Rand(t)
	in := CreateCQIn{Opcode: opCreateCQ, UID: 0x1234, OpMod: 0x5678, CQContext: randomContext(rng), CQUMEMOffset: rng.Uint64(), CQUMEMID: rng.Uint32(), CQUMEMValid: true}
	got, err := in.Append(nil)
	if err != nil || len(got) != 272 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	inner, err := DecodeCQContext(got[16:])
	if err != nil || inner != in.CQContext {
		t.Errorf("%+v in the command, %v, want %+v", inner, err, in.CQContext)
	}
}
