package flexio

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// CQContext is the device's CQ context, mlx5_ifc_cqc_bits, with the names of DPDK's mlx5_prm.h. A tag gives
// the first bit and the number of bits. Like the header, it counts from the top of the first big-endian
// dword.
type CQContext struct {
	Status                uint8  `bits:"0x000,4"`
	ASNotify              bool   `bits:"0x004,1"`
	InitiatorSrcDCT       bool   `bits:"0x005,1"`
	DBRUMEMValid          bool   `bits:"0x006,1"`
	ExtElement            bool   `bits:"0x007,1"` // apu_cq in Linux
	CQESz                 uint8  `bits:"0x008,3"` // 0: 64 bytes, 1: 128
	CC                    bool   `bits:"0x00b,1"`
	SCQEBreakModerationEn bool   `bits:"0x00d,1"`
	OI                    bool   `bits:"0x00e,1"`
	CQPeriodMode          uint8  `bits:"0x00f,2"`
	CQECompEn             bool   `bits:"0x011,1"`
	MiniCQEResFormat      uint8  `bits:"0x012,2"` // bits 1..0 of the format
	ST                    uint8  `bits:"0x014,4"` // set by the device: [CQArmed] and others
	AlwaysArmedCQ         bool   `bits:"0x018,1"`
	ExtElementType        uint8  `bits:"0x019,3"`
	CQECompLayout         uint8  `bits:"0x01e,2"` // 0: basic, 1: enhanced
	DBRUMEMID             uint32 `bits:"0x020,32"`
	PageOffset            uint8  `bits:"0x054,6"`
	MiniCQEResFormatExt   uint8  `bits:"0x05c,2"` // bits 3..2 of the format
	CQTimestampFormat     uint8  `bits:"0x05e,2"`
	LogCQSize             uint8  `bits:"0x063,5"`
	UARPage               uint32 `bits:"0x068,24"`
	CQPeriod              uint16 `bits:"0x084,12"` // microseconds
	CQMaxCount            uint16 `bits:"0x090,16"`
	CEQN                  uint32 `bits:"0x0a0,32"` // or the element; DPDK knows the lower 8 bits
	LogPageSize           uint8  `bits:"0x0c3,5"`
	LastNotifiedIndex     uint32 `bits:"0x108,24"`
	LastSolicitIndex      uint32 `bits:"0x128,24"`
	ConsumerCounter       uint32 `bits:"0x148,24"`
	ProducerCounter       uint32 `bits:"0x168,24"`
	LocalPartitionID      uint16 `bits:"0x180,12"`
	ProcessID             uint32 `bits:"0x18c,20"`
	DBRAddr               uint64 `bits:"0x1c0,64"` // or the offset in the umem
}

// The values of CQContext.ST of a queried CQ (Linux mlx5_ifc.h MLX5_CQC_ST_*). Do not set them in a new CQ:
// its doorbell arms it.
const (
	CQSolicitedArmed = 0x6
	CQArmed          = 0x9
	CQFired          = 0xa
)

// CreateCQIn is the command CREATE_CQ, mlx5_ifc_create_cq_in_bits, for a CQ with its ring and doorbell record
// in umems.
type CreateCQIn struct {
	Opcode       uint16    `bits:"0x000,16"` // MLX5_CMD_OP_CREATE_CQ
	UID          uint16    `bits:"0x010,16"`
	OpMod        uint16    `bits:"0x030,16"`
	CQContext    CQContext `bits:"0x080,512"`
	CQUMEMOffset uint64    `bits:"0x280,64"`
	CQUMEMID     uint32    `bits:"0x2c0,32"`
	CQUMEMValid  bool      `bits:"0x2e0,1"`
}

const (
	cqContextSize = 64
	createCQSize  = 272
	opCreateCQ    = 0x400 // MLX5_CMD_OP_CREATE_CQ
)

// Append appends the 64 bytes of the context to b. If a value is wider than its field, it returns an error
// with ErrAttr.
func (c *CQContext) Append(b []byte) ([]byte, error) { return appendBits(b, c, cqContextSize) }

// Append appends the 272 bytes of the command to b. Pass them to mlx5dv_devx_obj_create.
func (c *CreateCQIn) Append(b []byte) ([]byte, error) { return appendBits(b, c, createCQSize) }

// DecodeCQContext decodes a context, for example from byte 16 of the output of QUERY_CQ. It ignores bits
// without a field, and returns ErrShort for fewer than 64 bytes.
func DecodeCQContext(b []byte) (c CQContext, err error) {
	if len(b) < cqContextSize {
		return c, fmt.Errorf("decoding a CQ context from %d bytes, it has %d: %w", len(b), cqContextSize, ErrShort)
	}
	loadBits(b[:cqContextSize], &c)
	return c, nil
}

// appendBits appends size bytes with the fields of the structure *v.
func appendBits(b []byte, v any, size int) ([]byte, error) {
	at := len(b)
	out := append(b, make([]byte, size)...)

	s := reflect.ValueOf(v).Elem()
	for _, f := range reflect.VisibleFields(s.Type()) {
		first, width := bitsOf(f)
		val := s.FieldByIndex(f.Index)

		if val.Kind() == reflect.Struct {
			inner, err := appendBits(nil, val.Addr().Interface(), width/8)
			if err != nil {
				return b, err
			}
			copy(out[at+first/8:], inner)
			continue
		}

		n := number(val)
		if width < 64 && n >= 1<<width {
			return b, fmt.Errorf("encoding %s of %s: %d does not fit %d bits: %w", f.Name, s.Type(), n, width, ErrAttr)
		}
		putBits(out[at:], first, width, n)
	}
	return out, nil
}

// loadBits is the inverse of appendBits, for structures without nested ones.
func loadBits(b []byte, v any) {
	s := reflect.ValueOf(v).Elem()
	for _, f := range reflect.VisibleFields(s.Type()) {
		first, width := bitsOf(f)
		n := getBits(b, first, width)
		if val := s.FieldByIndex(f.Index); val.Kind() == reflect.Bool {
			val.SetBool(n != 0)
		} else {
			val.SetUint(n)
		}
	}
}

// number converts a field to a number. true is 1.
func number(v reflect.Value) uint64 {
	if v.Kind() != reflect.Bool {
		return v.Uint()
	}
	if v.Bool() {
		return 1
	}
	return 0
}

// bitsOf returns the first bit and the number of bits from the tag of a field.
func bitsOf(f reflect.StructField) (first, width int) {
	a, b, _ := strings.Cut(f.Tag.Get("bits"), ",")
	n, err1 := strconv.ParseInt(a, 0, 0)
	m, err2 := strconv.ParseInt(b, 0, 0)
	if err1 != nil || err2 != nil {
		panic("tag of " + f.Name) // a mistake in this file, found by TestCQContextFieldsLieWhereDPDKHasThem
	}
	return int(n), int(m)
}

// putBits and getBits access a field within one big-endian dword, or a field of two whole dwords.
func putBits(b []byte, first, width int, n uint64) {
	if width == 64 {
		binary.BigEndian.PutUint64(b[first/8:], n)
		return
	}
	word := b[first/32*4:]
	shift := 32 - first%32 - width
	binary.BigEndian.PutUint32(word, binary.BigEndian.Uint32(word)|uint32(n)<<shift)
}

func getBits(b []byte, first, width int) uint64 {
	if width == 64 {
		return binary.BigEndian.Uint64(b[first/8:])
	}
	shift := 32 - first%32 - width
	return uint64(binary.BigEndian.Uint32(b[first/32*4:])) >> shift & (1<<width - 1)
}
