package selftest

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane"
)

// The cards of this table count the frames of a selftest in each way that is possible. Frames of one kind alone would
// leave open whether a tag is missing or an FCS is counted.
func TestBasisIsTheOneByWhichTheCardCounted(t *testing.T) {
	const untaggedBytes, taggedBytes = 536_000, 540_000 // of 1000 frames each
	// frames are parts that a device counted with so many bytes more for each frame without and with a tag.
	frames := func(direction string, untagged, tagged int64) []Part {
		a := Part{Name: direction, Source: "rdma:mlx5_0/devx", Sent: 1000, Counted: 1000, SentBytes: untaggedBytes}
		b := Part{Name: direction + "-tagged", Source: "rdma:mlx5_0/devx", Sent: 1000, Counted: 1000, SentBytes: taggedBytes, tagged: 1000}
		a.CountedBytes = uint64(untaggedBytes + 1000*untagged)
		b.CountedBytes = uint64(taggedBytes + 1000*tagged)
		return []Part{a, b}
	}
	// received are the frames of both kinds that one flow counted.
	received := func(untagged, tagged int64) []Part {
		return []Part{{Name: "ingress frames", Source: "rdma:mlx5_0/devx", Sent: 2000, Counted: 2000, tagged: 1000,
			SentBytes: untaggedBytes + taggedBytes, CountedBytes: uint64(untaggedBytes + taggedBytes + 1000*(untagged+tagged))}}
	}
	for _, c := range []struct {
		card             string
		untagged, tagged int64
		want             dataplane.ByteBasis
	}{
		{"as XDP", 0, 0, dataplane.BasisL2},
		{"strips the tag", 0, -4, dataplane.BasisL2Untagged},
		{"with FCS", 4, 4, dataplane.BasisL2FCS},
		{"strips the tag, with FCS", 4, 0, dataplane.BasisL2FCSUntagged},
		{"from the IP header on", -14, -18, dataplane.BasisL3},
		{"something else", 7, 7, dataplane.BasisUnknown},
	} {
		for _, parts := range [][]Part{frames("egress", c.untagged, c.tagged), received(c.untagged, c.tagged)} {
			r := Report{Parts: parts}
			r.finish()
			if r.ByteBasis != c.want {
				t.Errorf("%s, %s: the basis is %q, want %q", c.card, parts[0].Name, r.ByteBasis, c.want)
			}
		}
		p := received(c.untagged, c.tagged)[0]
		if p.judge(); p.Result != Exact {
			t.Errorf("%s: both kinds in one flow: %s: %s", c.card, p.Result, p.Reason)
		}
	}

	r := Report{Parts: append(frames("egress", 0, 0), received(4, 4)...)}
	if r.finish(); r.ByteBasis != dataplane.BasisUnknown {
		t.Errorf("the basis of sent and received frames differs, and is %q", r.ByteBasis)
	}
	r = Report{Parts: frames("egress", 4, -4)}
	if r.finish(); r.ByteBasis != dataplane.BasisUnknown {
		t.Errorf("no basis fits each part, only their sum, and the basis is %q", r.ByteBasis)
	}
	r = Report{Parts: []Part{{Name: "egress", Source: "xdp:eth0/tcx", Sent: 1, Counted: 1, SentBytes: 60, CountedBytes: 60}}}
	if r.finish(); r.ByteBasis != "" {
		t.Errorf("no device counted, and the basis is %q", r.ByteBasis)
	}
}
