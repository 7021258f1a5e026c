package xdp

import (
	"fmt"
	"os"
	"testing"
)

func TestDump(t *testing.T) {
	if os.Getenv("DUMP") == "" {
		t.Skip()
	}
	rs, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rs.Destroy()
	c, _ := rs.AllocCounter("a")
	k, m := exactUDP4(0x0a000001, 0x0a000002, 1000, 53)
	if err := rs.Add(Rule{Key: k, Mask: m, Counter: c.ID}); err != nil {
		t.Fatal(err)
	}
	p, err := rs.loadFor(rs.constants, HookIngress, 1)
	if err != nil {
		t.Fatal(err)
	}
	info, _ := p.Info()
	ins, err := info.Instructions()
	fmt.Println(err, len(ins))
	for i := range ins {
		fmt.Printf("%d: %v\n", i, ins[i])
	}
}
