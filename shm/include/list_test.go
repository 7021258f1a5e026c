package include

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/flowtally/flowtally/shm"
)

// While all flows are being exchanged, a program in C lists each flow exactly once, and finds it by its name.
func TestCListsDuringExchangesAreWhole(t *testing.T) {
	program := build(t, "list")
	path, w := newMirror(t, shm.Options{CoolDown: -1})
	flows := make([]shm.Entry, 3000) // as testdata/list.c has it
	hs, goesOn := make([]shm.Handle, len(flows)), make([]bool, len(flows))
	for i := range flows {
		flows[i].Name = fmt.Sprint("a", i)
		hs[i], goesOn[i] = add(t, w, flows[i]), true
	}
	const exchanges = 60
	changes := exchanges * (2*len(flows) + 2<<48)
	type result struct {
		out []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := exec.CommandContext(t.Context(), program, path, fmt.Sprint(changes)).CombinedOutput()
		done <- result{out, err}
	}()
	for {
		select {
		case r := <-done:
			if r.err != nil {
				t.Fatalf("%v: %s", r.err, r.out)
			}
			t.Logf("%s", r.out)
			return
		default:
		}
		var err error
		if hs, err = w.Exchange(hs, flows, goesOn); err != nil {
			t.Fatal(err)
		}
	}
}
