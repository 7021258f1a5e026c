//go:build !race

#include "textflag.h"

// func copyBlockAVX2(dst, src *Block) (same bool)
// Copies 64 rows of 24 bytes, four at a time in three vectors, and tells whether
// all third words (sampled-at) are that of the first row: of the twelve words of
// four rows they are words 2, 5, 8 and 11, that is lane 2 of the first vector,
// lane 1 of the second, lanes 0 and 3 of the third, which two blends bring into
// one.
TEXT ·copyBlockAVX2(SB), NOSPLIT|NOFRAME, $0-17
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	VPBROADCASTQ 16(SI), Y0
	VPXOR        Y1, Y1, Y1
	MOVQ         $8, CX

rows8:
	VMOVDQU  (SI), Y2
	VMOVDQU  32(SI), Y3
	VMOVDQU  64(SI), Y4
	VMOVDQU  96(SI), Y6
	VMOVDQU  128(SI), Y7
	VMOVDQU  160(SI), Y8
	VMOVDQU  Y2, (DI)
	VMOVDQU  Y3, 32(DI)
	VMOVDQU  Y4, 64(DI)
	VMOVDQU  Y6, 96(DI)
	VMOVDQU  Y7, 128(DI)
	VMOVDQU  Y8, 160(DI)
	VPBLENDD $0x0C, Y3, Y2, Y5
	VPBLENDD $0x0C, Y7, Y6, Y9
	VPBLENDD $0xC3, Y4, Y5, Y5
	VPBLENDD $0xC3, Y8, Y9, Y9
	VPXOR    Y0, Y5, Y5
	VPXOR    Y0, Y9, Y9
	VPOR     Y5, Y1, Y1
	VPOR     Y9, Y1, Y1
	ADDQ     $192, SI
	ADDQ     $192, DI
	DECQ     CX
	JNZ      rows8

	VPTEST Y1, Y1
	SETEQ  same+16(FP)
	VZEROUPPER
	RET
