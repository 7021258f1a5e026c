package gen

import (
	"math/rand/v2"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// Most values come from small pools, so flows overlap and packets match them.

// one draws an element of a pool.
func one[T any](rng *rand.Rand, pool ...T) T { return pool[rng.IntN(len(pool))] }

// often returns true once in n draws.
func often(rng *rand.Rand, n int) bool { return rng.IntN(n) == 0 }

func drawMAC(rng *rand.Rand) (b [6]byte) {
	return [6]byte{2, 0, 0, byte(rng.IntN(2)), 0, byte(rng.IntN(3))}
}

func drawAddr4(rng *rand.Rand) [4]byte {
	if often(rng, 12) {
		return [4]byte{byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())}
	}
	return one(rng, [4]byte{10, 0, 0, byte(rng.IntN(4))}, [4]byte{10, byte(rng.IntN(3)), 2, 3}, [4]byte{192, 0, 2, byte(rng.IntN(2))})
}

func drawAddr6(rng *rand.Rand) (b [16]byte) {
	if often(rng, 12) {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	copy(b[:], []byte{0x20, 0x01, 0x0d, 0xb8, 0, byte(rng.IntN(2))})
	b[8], b[15] = byte(rng.IntN(2)), byte(rng.IntN(3))
	return b
}

func drawPort(rng *rand.Rand) uint16 {
	if often(rng, 6) {
		return uint16(rng.Uint32())
	}
	return one(rng, 0, 53, 80, 443, 1000, uint16(1000+rng.IntN(20)), 1023, 1024, 4789, 6081, 2152, 6635, 65535)
}

func drawByte(rng *rand.Rand) uint8 {
	return one(rng, 0, 1, 8, 64, 128, 255, uint8(rng.Uint32()))
}

func drawProto(rng *rand.Rand) uint8 {
	return one[uint8](rng, 1, 6, 6, 17, 17, 47, 58, 50, 50, 51, 51, 59, 4, 41, 132, 132, uint8(rng.Uint32()))
}

func drawTag(rng *rand.Rand) uint16 { return one[uint16](rng, 0, 1, 7, 100, 4095) }

func drawVNI(rng *rand.Rand) uint32 {
	return one[uint32](rng, 0, 5, 7, 0xffffff, rng.Uint32()&0xffffff)
}

// drawTEID draws a number in host order.
func drawTEID(rng *rand.Rand) uint32 { return one(rng, 0, 7, 0x1000, 0xffffffff, rng.Uint32()) }

func drawKey(rng *rand.Rand) uint32 { return one(rng, 0, 7, 0xffffffff, rng.Uint32()) }

func drawLabel(rng *rand.Rand) uint32 {
	return one[uint32](rng, 0, 1, 0xfffff, rng.Uint32()&0xfffff)
}

// drawSPI draws a number in host order.
func drawSPI(rng *rand.Rand) uint32 { return one(rng, 0, 7, 0x1000, 0xffffffff, rng.Uint32()) }

// drawOperation draws an operation of ARP.
func drawOperation(rng *rand.Rand) uint16 { return one(rng, 1, 1, 2, 2, 0, uint16(rng.Uint32())) }

// drawEntry draws a label stack entry: label, traffic class, bottom of stack, TTL.
func drawEntry(rng *rand.Rand) uint32 {
	return one[uint32](rng, 0, 16, 0xfffff, rng.Uint32()&0xfffff)<<12 | rng.Uint32()&0xf00 | uint32(drawByte(rng))
}

// drawFlags draws flags of TCP, mostly combinations that hosts send.
func drawFlags(rng *rand.Rand) flow.TCPFlags {
	return one(rng,
		flow.SYN, flow.SYN|flow.ACK, flow.ACK, flow.ACK|flow.PSH, flow.RST, flow.FIN|flow.ACK,
		flow.SYN|flow.ECE|flow.CWR, flow.SYN|flow.ECE|flow.CWR|flow.AE, 0,
		flow.TCPFlags(rng.Uint32()&0xfff))
}

func drawEtherType(rng *rand.Rand) uint16 {
	return one[uint16](rng, 0x0800, 0x86dd, 0x0806, 0x0806, 0x88cc, 0x8100, 0x88a8, 0x0100, 0x8847, 0x8847, 0x8848)
}

// under draws a mask for a field of some bits, and returns it with value under it. Most masks are the whole field; some are a
// prefix or random bits.
func under[T ~uint8 | ~uint16 | ~uint32](rng *rand.Rand, bits int, value T) flow.Masked[T] {
	whole := T(uint32(1)<<bits - 1)
	mask := whole
	switch rng.IntN(8) {
	case 0:
		mask = whole &^ T(uint32(1)<<rng.IntN(bits)-1)
	case 1:
		mask = whole & T(rng.Uint32())
	}
	return flow.Masked[T]{Value: value & mask, Mask: mask}
}

// maskBytes draws the mask of an address: the whole address, a prefix, or random bits.
func maskBytes(rng *rand.Rand, mask []byte) {
	n := 8 * len(mask)
	switch rng.IntN(6) {
	case 0, 1:
		n = rng.IntN(n + 1)
	case 2:
		n = 8 * rng.IntN(len(mask)+1)
	case 3:
		for i := range mask {
			mask[i] = one(rng, 0, 0xff, 0x0f, byte(rng.Uint32()))
		}
		return
	}
	for i := range mask {
		mask[i] = ^byte(0xff >> min(8, max(0, n-8*i)))
	}
}

func and(addr, mask []byte) {
	for i := range addr {
		addr[i] &= mask[i]
	}
}
