package xdp

import (
	"testing"
	"testing/synctest"
	"time"
)

// Questions about many hooks cost one list while it is young, for its cost.
func TestQuestionsAboutManyHooksShareAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		var l listed[uint32, int]
		list := func() (map[uint32]int, error) {
			lists++
			time.Sleep(10 * time.Millisecond)
			return map[uint32]int{7: lists}, nil
		}
		for range 240 {
			if got, err := l.get(7, list); got != 1 || err != nil {
				t.Fatalf("got %d, %v", got, err)
			}
		}
		time.Sleep(101 * time.Millisecond)
		if got, _ := l.get(7, list); got != 2 {
			t.Errorf("got %d from the list %d, want it from another one", got, lists)
		}
		if got, _ := l.get(8, list); got != 0 || lists != 2 {
			t.Errorf("got %d for a hook that is not listed, after %d lists", got, lists)
		}
	})
}
