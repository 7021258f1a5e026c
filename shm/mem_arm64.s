//go:build !race

#include "textflag.h"

// DMB options: 0xA is ISHST (stores before stores), 0x9 is ISHLD (loads before
// loads and stores).

// func publish64(p *uint64, v uint64)
TEXT ·publish64(SB), NOSPLIT|NOFRAME, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	STLR R1, (R0)
	RET

// func announce64(p *uint64, v uint64)
// The fence is behind the store: *p and the sequence word of the publish before
// must be visible before the stores that fill the copy. An STLR in place of
// the two instructions would let those stores overtake it.
TEXT ·announce64(SB), NOSPLIT|NOFRAME, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	MOVD R1, (R0)
	DMB  $0xA
	RET

// func storeFence()
TEXT ·storeFence(SB), NOSPLIT|NOFRAME, $0-0
	DMB $0xA
	RET

// func loadFence()
TEXT ·loadFence(SB), NOSPLIT|NOFRAME, $0-0
	DMB $0x9
	RET
