//go:build !race

#include "textflag.h"

// func publishSameAVX2(seq, intent *uint64, to *copyMem, src *Block, next, cycle uint64) (done bool)
//
// Announces the publish, copies 64 rows of 24 bytes, four at a time in three
// vectors, and finds out in passing whether all third words (sampled-at) are that
// of the first row: of the twelve words of four rows they are words 2, 5, 8 and
// 11, that is lane 2 of the first vector, lane 1 of the second, lanes 0 and 3 of
// the third, which two blends bring into one. If they are, the head of the copy
// and the sequence word are stored too. All stores are in the order of the
// protocol, which amd64 keeps.
TEXT ·publishSameAVX2(SB), NOSPLIT|NOFRAME, $0-49
	MOVQ         seq+0(FP), BX
	MOVQ         intent+8(FP), AX
	MOVQ         to+16(FP), DX
	MOVQ         src+24(FP), SI
	MOVQ         next+32(FP), R8
	MOVQ         R8, (AX)               // intent
	LEAQ         64(DX), DI             // the values of the copy
	MOVQ         16(SI), R10            // the first row's time
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
	VZEROUPPER
	JNE    mixed
	MOVQ   cycle+40(FP), R11
	MOVQ   R11, (DX)             // cycle
	MOVQ   R10, 8(DX)            // oldest
	MOVQ   R10, 16(DX)           // newest
	MOVQ   $-1, 24(DX)           // live
	MOVQ   R8, R9
	SHRQ   $40, R9
	MOVQ   R9, 32(DX)            // epoch
	MOVQ   R8, (BX)              // seq
	MOVB   $1, done+48(FP)
	RET

mixed:
	MOVB $0, done+48(FP)
	RET

// func streamAVX2(dst, src *copyMem, heads *copyHead, n int, next *lineMem) (done bool)
//
// Copies n copies of 1600 bytes by stores that do not read the lines that they overwrite, the first 32
// bytes of each also to heads, and fetches a line of next for each of them. It returns false, and has
// copied nothing, when dst is not aligned to 32 bytes. The fence orders those stores before every later
// one.
TEXT ·streamAVX2(SB), NOSPLIT|NOFRAME, $0-41
	MOVQ  dst+0(FP), DI
	MOVQ  src+8(FP), SI
	MOVQ  heads+16(FP), BX
	MOVQ  n+24(FP), CX
	MOVQ  next+32(FP), AX
	TESTQ $31, DI
	JNE   unaligned

copies:
	PREFETCHT0 (AX)
	ADDQ       $64, AX
	VMOVDQU    (SI), Y2
	VMOVDQU    Y2, (BX)
	ADDQ       $32, BX
	MOVQ       $25, DX // pieces of 64 bytes

pieces:
	PREFETCHT0 1024(SI)
	VMOVDQU    (SI), Y0
	VMOVDQU    32(SI), Y1
	VMOVNTDQ   Y0, (DI)
	VMOVNTDQ   Y1, 32(DI)
	ADDQ       $64, SI
	ADDQ       $64, DI
	DECQ       DX
	JNZ        pieces
	DECQ       CX
	JNZ        copies
	SFENCE
	VZEROUPPER
	MOVB $1, done+40(FP)
	RET

unaligned:
	MOVB $0, done+40(FP)
	RET
