//go:build !race

#include "textflag.h"

// func publish64(p *uint64, v uint64)
// amd64 keeps a store after all earlier loads and stores, so a MOV is a store-release.
TEXT ·publish64(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ CX, (AX)
	RET

// func announce64(p *uint64, v uint64)
// amd64 keeps stores in order, so the MOV needs no fence behind it.
TEXT ·announce64(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ CX, (AX)
	RET
