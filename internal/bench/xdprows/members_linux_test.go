package xdprows

import (
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/xdp/members"
)

func TestMembersSmoke(t *testing.T) {
	need.BPF(t)
	s := newMemberSet(10000, listed)
	r, err := newMemberRig(memberSections{shape: members.Shape{IPv4: 10000, IPv6: 10000}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer r.close()
	if err := r.fill(s.prefixes); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{packetsMiss, packetsHit, packetsNear} {
		if err := r.ask(s.addresses(kind)); err != nil {
			t.Fatal(err)
		}
		n, err := r.found(t.Context(), "members_ours4")
		t.Log(kind, n, err)
	}
}
