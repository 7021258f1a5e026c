#include "textflag.h"

// func sumSlots(slots *uint64, stride, cpus, n uintptr, base *sums, dst *Pair) (torn uint64)
//
// Eight counters at a time, two in a vector: Y0 to Y3 sum first words (even
// lanes) and second words (odd lanes), Y15 gathers where the low bytes of a slot's
// two words differ.
TEXT ·sumSlots(SB), NOSPLIT|NOFRAME, $0-56
	MOVQ         slots+0(FP), SI
	MOVQ         stride+8(FP), DX
	MOVQ         cpus+16(FP), R8
	MOVQ         n+24(FP), CX
	MOVQ         base+32(FP), BX
	MOVQ         dst+40(FP), DI
	MOVQ         $8, AX
	VMOVQ        AX, X14
	VPSLLDQ      $8, X14, X14
	VINSERTI128  $1, X14, Y14, Y14 // shift counts: packets by 0, bytes by 8
	VPXOR        Y15, Y15, Y15

counters:
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	MOVQ  SI, R9
	MOVQ  R8, R10

cpus:
	VMOVDQA     0(R9), X4
	VMOVDQA     16(R9), X8
	VMOVDQA     32(R9), X5
	VMOVDQA     48(R9), X9
	VMOVDQA     64(R9), X6
	VMOVDQA     80(R9), X10
	VMOVDQA     96(R9), X7
	VMOVDQA     112(R9), X11
	VINSERTI128 $1, X8, Y4, Y4
	VINSERTI128 $1, X9, Y5, Y5
	VINSERTI128 $1, X10, Y6, Y6
	VINSERTI128 $1, X11, Y7, Y7
	VPSHUFD     $0x4E, Y4, Y8
	VPSHUFD     $0x4E, Y5, Y9
	VPSHUFD     $0x4E, Y6, Y10
	VPSHUFD     $0x4E, Y7, Y11
	VPXOR       Y4, Y8, Y8
	VPXOR       Y5, Y9, Y9
	VPXOR       Y6, Y10, Y10
	VPXOR       Y7, Y11, Y11
	VPOR        Y8, Y9, Y8
	VPOR        Y10, Y11, Y10
	VPOR        Y8, Y15, Y15
	VPOR        Y10, Y15, Y15
	VPADDQ      Y4, Y0, Y0
	VPADDQ      Y5, Y1, Y1
	VPADDQ      Y6, Y2, Y2
	VPADDQ      Y7, Y3, Y3
	ADDQ        DX, R9
	DECQ        R10
	JNZ         cpus

	// The second word is 256 * bytes + packets, of which bytes wrap around: the base comes off first.
	VPSUBQ  0(BX), Y0, Y0
	VPSUBQ  32(BX), Y1, Y1
	VPSUBQ  64(BX), Y2, Y2
	VPSUBQ  96(BX), Y3, Y3
	VPSLLDQ $8, Y0, Y8
	VPSLLDQ $8, Y1, Y9
	VPSLLDQ $8, Y2, Y10
	VPSLLDQ $8, Y3, Y11
	VPSUBQ  Y8, Y0, Y0
	VPSUBQ  Y9, Y1, Y1
	VPSUBQ  Y10, Y2, Y2
	VPSUBQ  Y11, Y3, Y3
	VPSRLVQ Y14, Y0, Y0
	VPSRLVQ Y14, Y1, Y1
	VPSRLVQ Y14, Y2, Y2
	VPSRLVQ Y14, Y3, Y3
	VMOVDQU Y0, 0(DI)
	VMOVDQU Y1, 32(DI)
	VMOVDQU Y2, 64(DI)
	VMOVDQU Y3, 96(DI)
	ADDQ    $128, SI
	ADDQ    $128, BX
	ADDQ    $128, DI
	SUBQ    $8, CX
	JNZ     counters

	VEXTRACTI128 $1, Y15, X14
	VPOR         X14, X15, X15
	VMOVQ        X15, AX
	VZEROUPPER
	ANDQ         $0xff, AX
	MOVQ         AX, torn+48(FP)
	RET

// func sumRows(slots *uint64, stride, cpus, n uintptr, base *sums, dst *Row, at int64) (done uintptr)
//
// As sumSlots, into rows of three words: 192 bytes of eight counters in six stores, and of the last four, where n is not
// a multiple of 8, in three. It ends before the first group of which a slot was met between its stores.
TEXT ·sumRows(SB), NOSPLIT|NOFRAME, $0-64
	MOVQ         slots+0(FP), SI
	MOVQ         stride+8(FP), DX
	MOVQ         cpus+16(FP), R8
	MOVQ         n+24(FP), CX
	MOVQ         base+32(FP), BX
	MOVQ         dst+40(FP), DI
	VPBROADCASTQ at+48(FP), Y13
	MOVQ         $8, AX
	VMOVQ        AX, X14
	VPSLLDQ      $8, X14, X14
	VINSERTI128  $1, X14, Y14, Y14
	MOVQ         $0xff, AX
	VMOVQ        AX, X12
	VPBROADCASTQ X12, Y12
	XORQ         AX, AX
	VPXOR        Y15, Y15, Y15
	SUBQ         $8, CX
	JCS          four

group:
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	MOVQ  SI, R9
	MOVQ  R8, R10

each:
	VMOVDQA     0(R9), X4
	VMOVDQA     16(R9), X8
	VMOVDQA     32(R9), X5
	VMOVDQA     48(R9), X9
	VMOVDQA     64(R9), X6
	VMOVDQA     80(R9), X10
	VMOVDQA     96(R9), X7
	VMOVDQA     112(R9), X11
	VINSERTI128 $1, X8, Y4, Y4
	VINSERTI128 $1, X9, Y5, Y5
	VINSERTI128 $1, X10, Y6, Y6
	VINSERTI128 $1, X11, Y7, Y7
	VPSHUFD     $0x4E, Y4, Y8
	VPSHUFD     $0x4E, Y5, Y9
	VPSHUFD     $0x4E, Y6, Y10
	VPSHUFD     $0x4E, Y7, Y11
	VPXOR       Y4, Y8, Y8
	VPXOR       Y5, Y9, Y9
	VPXOR       Y6, Y10, Y10
	VPXOR       Y7, Y11, Y11
	VPOR        Y8, Y9, Y8
	VPOR        Y10, Y11, Y10
	VPOR        Y8, Y15, Y15
	VPOR        Y10, Y15, Y15
	VPADDQ      Y4, Y0, Y0
	VPADDQ      Y5, Y1, Y1
	VPADDQ      Y6, Y2, Y2
	VPADDQ      Y7, Y3, Y3
	ADDQ        DX, R9
	DECQ        R10
	JNZ         each

	// Low bytes that differ: nothing of this group is stored.
	VPTEST Y12, Y15
	JNZ    done

	// The second word is 256 * bytes + packets, of which bytes wrap around: the base comes off first.
	VPSUBQ  0(BX), Y0, Y0
	VPSUBQ  32(BX), Y1, Y1
	VPSUBQ  64(BX), Y2, Y2
	VPSUBQ  96(BX), Y3, Y3
	VPSLLDQ $8, Y0, Y8
	VPSLLDQ $8, Y1, Y9
	VPSLLDQ $8, Y2, Y10
	VPSLLDQ $8, Y3, Y11
	VPSUBQ  Y8, Y0, Y0
	VPSUBQ  Y9, Y1, Y1
	VPSUBQ  Y10, Y2, Y2
	VPSUBQ  Y11, Y3, Y3
	VPSRLVQ Y14, Y0, Y0
	VPSRLVQ Y14, Y1, Y1
	VPSRLVQ Y14, Y2, Y2
	VPSRLVQ Y14, Y3, Y3
	// [p0 b0 p1 b1] and [p2 b2 p3 b3] become [p0 b0 t p1] [b1 t p2 b2] [t p3 b3 t].
	VPERM2I128 $0x21, Y1, Y0, Y4
	VPERM2I128 $0x21, Y3, Y2, Y5
	VPERMQ     $0x84, Y0, Y0
	VPERMQ     $0xE1, Y4, Y4
	VPERMQ     $0x38, Y1, Y1
	VPERMQ     $0x84, Y2, Y2
	VPERMQ     $0xE1, Y5, Y5
	VPERMQ     $0x38, Y3, Y3
	VPBLENDD   $0x30, Y13, Y0, Y0
	VPBLENDD   $0x0C, Y13, Y4, Y4
	VPBLENDD   $0xC3, Y13, Y1, Y1
	VPBLENDD   $0x30, Y13, Y2, Y2
	VPBLENDD   $0x0C, Y13, Y5, Y5
	VPBLENDD   $0xC3, Y13, Y3, Y3
	VMOVDQU    Y0, 0(DI)
	VMOVDQU    Y4, 32(DI)
	VMOVDQU    Y1, 64(DI)
	VMOVDQU    Y2, 96(DI)
	VMOVDQU    Y5, 128(DI)
	VMOVDQU    Y3, 160(DI)
	ADDQ       $128, SI
	ADDQ       $128, BX
	ADDQ       $192, DI
	ADDQ       $8, AX
	SUBQ       $8, CX
	JCC        group

four:
	ADDQ  $8, CX
	JZ    done
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	MOVQ  R8, R10

line:
	VMOVDQA     0(SI), X4
	VMOVDQA     16(SI), X8
	VMOVDQA     32(SI), X5
	VMOVDQA     48(SI), X9
	VINSERTI128 $1, X8, Y4, Y4
	VINSERTI128 $1, X9, Y5, Y5
	VPSHUFD     $0x4E, Y4, Y8
	VPSHUFD     $0x4E, Y5, Y9
	VPXOR       Y4, Y8, Y8
	VPXOR       Y5, Y9, Y9
	VPOR        Y8, Y9, Y8
	VPOR        Y8, Y15, Y15
	VPADDQ      Y4, Y0, Y0
	VPADDQ      Y5, Y1, Y1
	ADDQ        DX, SI
	DECQ        R10
	JNZ         line
	VPTEST      Y12, Y15
	JNZ         done
	VPSUBQ      0(BX), Y0, Y0
	VPSUBQ      32(BX), Y1, Y1
	VPSLLDQ     $8, Y0, Y8
	VPSLLDQ     $8, Y1, Y9
	VPSUBQ      Y8, Y0, Y0
	VPSUBQ      Y9, Y1, Y1
	VPSRLVQ     Y14, Y0, Y0
	VPSRLVQ     Y14, Y1, Y1
	VPERM2I128  $0x21, Y1, Y0, Y4
	VPERMQ      $0x84, Y0, Y0
	VPERMQ      $0xE1, Y4, Y4
	VPERMQ      $0x38, Y1, Y1
	VPBLENDD    $0x30, Y13, Y0, Y0
	VPBLENDD    $0x0C, Y13, Y4, Y4
	VPBLENDD    $0xC3, Y13, Y1, Y1
	VMOVDQU     Y0, 0(DI)
	VMOVDQU     Y4, 32(DI)
	VMOVDQU     Y1, 64(DI)
	ADDQ        $4, AX

done:
	VZEROUPPER
	MOVQ AX, done+56(FP)
	RET

// func addMarks(dst []uint32, src *uint32, stride uintptr)
TEXT ·addMarks(SB), NOSPLIT|NOFRAME, $0-40
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src+24(FP), SI
	MOVQ stride+32(FP), DX
	LEAQ (SI)(DX*1), R8
	LEAQ (SI)(DX*2), R9
	LEAQ (R8)(DX*2), R10
	XORQ AX, AX

sixteen:
	VMOVDQU (SI)(AX*1), Y0
	VMOVDQU 32(SI)(AX*1), Y1
	VMOVDQU (R9)(AX*1), Y2
	VMOVDQU 32(R9)(AX*1), Y3
	VPADDD  (R8)(AX*1), Y0, Y0
	VPADDD  32(R8)(AX*1), Y1, Y1
	VPADDD  (R10)(AX*1), Y2, Y2
	VPADDD  32(R10)(AX*1), Y3, Y3
	VPADDD  (DI)(AX*1), Y0, Y0
	VPADDD  32(DI)(AX*1), Y1, Y1
	VPADDD  Y2, Y0, Y0
	VPADDD  Y3, Y1, Y1
	VMOVDQU Y0, (DI)(AX*1)
	VMOVDQU Y1, 32(DI)(AX*1)
	ADDQ    $64, AX
	SUBQ    $16, CX
	JNZ     sixteen
	VZEROUPPER
	RET
