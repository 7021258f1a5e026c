package main

import (
	"testing"

	"github.com/flowtally/flowtally/ibv/flexio"
)

func TestOnlyASyndromeOfAFailureShowsTheCause(t *testing.T) {
	for syndrome, want := range map[flexio.Syndrome]bool{
		0:                           false,
		flexio.SyndromeWRFlush:      false,
		flexio.SyndromeRemoteAccess: true,
		flexio.SyndromeLocalProt:    true,
	} {
		if got := showsCause(syndrome); got != want {
			t.Errorf("syndrome %#x shows the cause: %t, want %t", uint8(syndrome), got, want)
		}
	}
}
