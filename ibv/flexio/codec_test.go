package flexio

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

// identity decodes b as a T and encodes it again: the bytes are the same.
func identity[T Struct](t *testing.T, b []byte) {
	t.Helper()
	v, err := Decode[T](b)
	if len(b) < Size[T]() {
		if !errors.Is(err, ErrShort) {
			t.Errorf("%T from %d bytes: %v, want %v", v, len(b), err, ErrShort)
		}
		return
	}
	if err != nil {
		t.Fatalf("%T: %v", v, err)
	}
	prefix := []byte("before")
	got := Append(prefix, v)
	if !bytes.Equal(got[:len(prefix)], prefix) || !bytes.Equal(got[len(prefix):], b[:Size[T]()]) {
		t.Errorf("%T:\n%x became\n%x", v, b[:Size[T]()], got[len(prefix):])
	}
	again, err := Decode[T](got[len(prefix):])
	if err != nil || again != v {
		t.Errorf("%+v became %+v, %v", v, again, err)
	}
}

// Every pattern of bits is a valid structure, and no bit may be lost.
func FuzzIdentity(f *testing.F) {
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	walk := make([]byte, 64)
	for i := range walk {
		walk[i] = byte(i)
	}
	f.Add(walk)
	f.Fuzz(func(t *testing.T, b []byte) {
		identity[CQE64](t, b)
		identity[ErrCQE](t, b)
		identity[MiniCQEBlock](t, b)
		identity[EQE](t, b)
		identity[CtrlSeg](t, b)
		identity[AtomicSeg](t, b)
		identity[DatagramSeg](t, b)
		identity[EthSeg](t, b)
		identity[InlineDataSeg](t, b)
		identity[InlineSendDataSeg](t, b)
		identity[MemPtrSendDataSeg](t, b)
		identity[RcvDataSeg](t, b)
		identity[RDMASeg](t, b)
		identity[SharedReceiveSeg](t, b)
		identity[TransposeSeg](t, b)
		identity[WaitOnDataSeg](t, b)
		identity[WaitOnDataDataSeg](t, b)
		if len(b) >= 64 {
			c, err := Decode[CQE64](b)
			if err != nil {
				t.Fatal(err)
			}
			var loaded CQE64
			if loaded.load(b); loaded != c {
				t.Errorf("the walk reads %+v, Decode %+v", loaded, c)
			}
			e, err := Decode[ErrCQE](b)
			if err != nil {
				t.Fatal(err)
			}
			if c.Syndrome != e.Syndrome || c.VendorErrSynd != e.VendorErrSynd || c.WQECounter != e.WQECounter || c.OpOwn != e.OpOwn || c.QPN() != e.SWQEOpcodeQPN&0xffffff {
				t.Errorf("the two readings of an entry differ: %+v, %+v", c, e)
			}
			if isErr := c.OpOwn.Opcode().IsError(); isErr != (c.Err() != nil) || isErr && c.Timestamp() != 0 {
				t.Errorf("error %v, timestamp %d of opcode %v", c.Err(), c.Timestamp(), c.OpOwn.Opcode())
			}
			_, _ = c.OpOwn.Opcode().String(), c.Syndrome.String()
		}
	})
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
		name      string
		got, want any
	}{
		{"cqe csum_ok, dword 05h bits 31..16", must[CQE64](t, at(64, 0x14, 0xab, 0xcd)).CsumOK, uint16(0xabcd)},
		{"cqe byte_cnt, dword 0Bh", must[CQE64](t, at(64, 0x2c, 1, 2, 3, 4)).ByteCnt, uint32(0x01020304)},
		{"cqe syndrome, dword 0Dh bits 7..0", must[CQE64](t, at(64, 0x37, 0x15)).Syndrome, SyndromeTransportRetries},
		{"cqe qpn24, dword 0Eh bits 23..0", ptr(must[CQE64](t, at(64, 0x38, 0xff, 1, 2, 3))).QPN(), uint32(0x010203)},
		{"cqe wqe_counter, dword 0Fh bits 31..16", must[CQE64](t, at(64, 0x3c, 0x12, 0x34)).WQECounter, uint16(0x1234)},
		{"cqe opcode, dword 0Fh bits 7..4", must[CQE64](t, at(64, 0x3f, 0xd1)).OpOwn.Opcode(), OpReqErr},
		{"cqe owner, dword 0Fh bit 0", must[CQE64](t, at(64, 0x3f, 0xd1)).OpOwn.Owner(), uint8(1)},
		{"cqe format", must[CQE64](t, at(64, 0x3f, 0x0c)).OpOwn.Format(), Compressed},
		{"cqe solicited event", must[CQE64](t, at(64, 0x3f, 0x02)).OpOwn.Solicited(), true},
		{"cqe format is not solicited", must[CQE64](t, at(64, 0x3f, 0xfd)).OpOwn.Solicited(), false},
		{"cqe timestamp", ptr(must[CQE64](t, at(64, 0x30, 1, 2, 3, 4, 5, 6, 7, 8))).Timestamp(), uint64(0x0102030405060708)},
		{"mini 6", must[MiniCQEBlock](t, at(64, 0x30, 1, 2, 3, 4, 5, 6, 7, 8)).MiniCQE[6], uint64(0x0102030405060708)},
		{"mini num", ptr(must[MiniCQEBlock](t, at(64, 0x3f, 0x60))).Num(), 7},
		// mlx5_eqe of rdma-core's mlx5_vfio.h, which is not installed: type at 1,
		// sub_type at 3, cqn in the low 24 bits of the word at 0x38, owner at 0x3f.
		{"eqe type", must[EQE](t, at(64, 0x01, 7)).Type, uint8(7)},
		{"eqe sub_type", must[EQE](t, at(64, 0x03, 7)).SubType, uint8(7)},
		{"eqe cqn, byte 18h of the data, 24 bits", ptr(must[EQE](t, at(64, 0x38, 0xff, 1, 2, 3))).CQN(), uint32(0x010203)},
		{"eqe owner", must[EQE](t, at(64, 0x3f, 1)).Owner, uint8(1)},
		{"datagram dc_key", ptr(must[DatagramSeg](t, at(48, 0, 1, 2, 3, 4, 5, 6, 7, 8))).DCKey(), uint64(0x0102030405060708)},
		{"transpose element_size, dword 00h bits 7..0", must[TransposeSeg](t, at(16, 3, 9)).ElementSize, uint8(9)},
		{"transpose num_of_cols, dword 01h bits 22..16", must[TransposeSeg](t, at(16, 5, 9)).NumOfCols, uint8(9)},
		{"transpose num_of_rows, dword 01h bits 6..0", must[TransposeSeg](t, at(16, 7, 9)).NumOfRows, uint8(9)},
		{"wait_on_data op_inv, byte 3h", must[WaitOnDataSeg](t, at(16, 3, 9)).OpInv, uint8(9)},
		{"wait_on_data va_63_32, bytes 8h..bh", must[WaitOnDataSeg](t, at(16, 8, 1, 2, 3, 4)).VA63_32, uint32(0x01020304)},
		{"wait_on_data va_31_3_fail_act, bytes ch..fh", must[WaitOnDataSeg](t, at(16, 0xc, 1, 2, 3, 4)).VA31_3FailAct, uint32(0x01020304)},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %#v, want %#v", tt.name, tt.got, tt.want)
		}
	}
	var d DatagramSeg
	d.SetDCKey(0x0102030405060708)
	if d.DCKey() != 0x0102030405060708 || d.QKey != 0x01020304 {
		t.Errorf("DC key %#x, Q_Key %#x", d.DCKey(), d.QKey)
	}
}

func must[T Struct](t *testing.T, b []byte) T {
	t.Helper()
	v, err := Decode[T](b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func ptr[T any](v T) *T { return &v }

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
