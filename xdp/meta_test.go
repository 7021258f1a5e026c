package xdp

import "testing"

// A later start must not see a mask that was given up, nor the constants of programs that are not attached any more.
func TestMetaForgetsWhatWasCleared(t *testing.T) {
	g, err := newGeometry(Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	m := metaOf(make([]uint64, metaBytes(g)/8), g)
	m.setTuple(3, &words{1, 2})
	if got := m.masks(); len(got) != 1 || got[3] == nil || *got[3] != (words{1, 2}) {
		t.Errorf("masks %v after one was set", got)
	}
	m.clearTuple(3)
	if got := m.masks(); len(got) != 0 {
		t.Errorf("masks %v after it was cleared", got)
	}
	const first = 1 // the id of the first program of a machine
	m.setLoaded(first, constants{need: 5})
	if need, _, ok := m.loadedFrom(first); !ok || need != 5 {
		t.Errorf("the constants: need %d, %v", need, ok)
	}
	m.clearLoaded()
	if _, _, ok := m.loadedFrom(first); ok {
		t.Error("the constants are there after they were cleared")
	}
}
