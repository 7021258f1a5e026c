package tick

import (
	"testing"
	"time"
)

// With either mechanism a Ticker ticks, can be kicked before and during a Wait, can change its period, drops ticks that
// nobody waited for, and ends a Wait when it is closed.
func TestTickerTicksKicksAndDropsMissedTicks(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func() *Ticker
	}{
		{"default", New},
		{"runtime", func() *Ticker { return &Ticker{timer: newRuntimeTimer()} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := tt.make()
			defer k.Close()
			waited := make(chan struct{})
			wait := func() {
				go func() { k.Wait(); waited <- struct{}{} }()
			}
			returns := func(when string) {
				t.Helper()
				select {
				case <-waited:
				case <-time.After(time.Minute):
					t.Fatalf("%s: Wait does not return", when)
				}
			}
			waits := func(when string) {
				t.Helper()
				select {
				case <-waited:
					t.Fatalf("%s: Wait returned", when)
				case <-time.After(20 * time.Millisecond):
				}
			}
			wait()
			waits("before Reset")
			k.Kick()
			returns("a Kick without a period")
			k.Reset(time.Millisecond)
			for range 3 {
				wait()
				returns("a tick")
			}
			k.Reset(time.Hour)
			k.Kick()
			k.Kick()
			k.Reset(2 * time.Hour)
			wait()
			returns("a Kick before Reset and Wait")
			k.Reset(0)
			wait()
			waits("after the ticks have ended")
			k.Close()
			returns("Close")
			k.Close()
			k.Reset(time.Millisecond)
			k.Kick()
			wait()
			returns("after Close")
		})
	}
}

// Other goroutines may call Reset and Kick during a Wait, without a lock.
func TestTickerMayBeResetFromAnyGoroutine(t *testing.T) {
	k := New()
	k.Reset(time.Hour)
	done := make(chan struct{})
	for range 4 {
		go func() {
			for {
				select {
				case <-done:
					return
				default:
					k.Kick()
					k.Reset(time.Hour)
				}
			}
		}()
	}
	for range 50 {
		k.Wait()
	}
	close(done)
	k.Close()
}

// Waiting for a tick allocates nothing.
func TestWaitAllocatesNothing(t *testing.T) {
	k := New()
	defer k.Close()
	k.Reset(100 * time.Microsecond)
	if n := testing.AllocsPerRun(100, k.Wait); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
