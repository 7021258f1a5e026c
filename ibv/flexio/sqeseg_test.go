package flexio

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

func TestSQESegHoldsExactlyOneSegment(t *testing.T) {
	typ := reflect.TypeFor[SQESeg]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		var s SQESeg
		seg := reflect.New(f.Type.Elem())
		want := make([]byte, binarySize(f.Type.Elem()))
		for j := range want {
			want[j] = byte(i*16 + j + 1)
		}
		decodeInto(t, seg, want)
		reflect.ValueOf(&s).Elem().Field(i).Set(seg)
		got, err := s.Append([]byte("before"))
		if err != nil || !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Errorf("%s: %x, %v, want %x behind what was there", f.Name, got, err, want)
		}
		other := reflect.ValueOf(&s).Elem().Field((i + 1) % typ.NumField())
		other.Set(reflect.New(other.Type().Elem()))
		if got, err := s.Append(nil); !errors.Is(err, ErrAttr) || got != nil {
			t.Errorf("%s and another: %x, %v, want %v", f.Name, got, err, ErrAttr)
		}
	}
	if err := (&SQESeg{}).Validate(); !errors.Is(err, ErrAttr) {
		t.Errorf("no segment: %v, want %v", err, ErrAttr)
	}
}

// decodeInto decodes b into the structure that v points to.
func decodeInto(t *testing.T, v reflect.Value, b []byte) {
	t.Helper()
	var err error
	switch s := v.Interface().(type) {
	case *DatagramSeg:
		*s, err = Decode[DatagramSeg](b)
	case *AtomicSeg:
		*s, err = Decode[AtomicSeg](b)
	case *CtrlSeg:
		*s, err = Decode[CtrlSeg](b)
	case *EthSeg:
		*s, err = Decode[EthSeg](b)
	case *InlineDataSeg:
		*s, err = Decode[InlineDataSeg](b)
	case *InlineSendDataSeg:
		*s, err = Decode[InlineSendDataSeg](b)
	case *MemPtrSendDataSeg:
		*s, err = Decode[MemPtrSendDataSeg](b)
	case *RDMASeg:
		*s, err = Decode[RDMASeg](b)
	case *SharedReceiveSeg:
		*s, err = Decode[SharedReceiveSeg](b)
	case *TransposeSeg:
		*s, err = Decode[TransposeSeg](b)
	case *WaitOnDataSeg:
		*s, err = Decode[WaitOnDataSeg](b)
	case *WaitOnDataDataSeg:
		*s, err = Decode[WaitOnDataDataSeg](b)
	default:
		t.Fatalf("%T is no segment", s)
	}
	if err != nil {
		t.Fatal(err)
	}
}
