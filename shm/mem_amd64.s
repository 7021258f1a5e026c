//go:build !race

#include "textflag.h"

// func publish64(p *uint64, v uint64)
// A MOV is a release store on amd64.
TEXT ·publish64(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ CX, (AX)
	RET

// func announce64(p *uint64, v uint64)
// Stores are not reordered with stores on amd64.
TEXT ·announce64(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ CX, (AX)
	RET
