package xdp

import (
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/xdp"
	"github.com/flowtally/flowtally/xdp/links"
)

// Even without a flow that asks for tags: a VLAN device above an interface makes us count its bytes 4 short.
func TestAVLANDeviceAboveMakesTakenTagsACondition(t *testing.T) {
	h := &hooks{upstream: upstream{stacks: newStacks(), receive: map[string]received{
		"eth0": {receive: receive{TakesTags: true}}, "eth1": {receive: receive{TakesTags: true, Fixed: true}},
	}}}
	eth0 := xdp.Attachment{Interface: "eth0", Index: 2, Hook: xdp.HookIngress, Mode: "native"}
	for _, ev := range []links.Event{
		{Kind: links.Added, Index: 2, Link: links.Link{Index: 2, Name: "eth0"}},
		{Kind: links.Added, Index: 5, Link: links.Link{Index: 5, Name: "eth0.5", Kind: "vlan", Parent: 2}},
		{Kind: links.Added, Index: 6, Link: links.Link{Index: 6, Name: "eth9.5", Kind: "vlan", Parent: 9}},
		{Kind: links.Renamed, Index: 5, Link: links.Link{Index: 5, Name: "office", Kind: "vlan", Parent: 2}},
	} {
		h.upstream.stacks.note(ev)
	}
	got := h.upstreamConditions(eth0)
	if len(got) != 1 || !strings.Contains(got[0].Text, "packets for office are counted 4 bytes short") || got[0].Fix != "ethtool -K eth0 rx-vlan-offload off" {
		t.Errorf("conditions %+v", got)
	}
	h.upstream.stacks.note(links.Event{Kind: links.Removed, Name: "office", Index: 5})
	if got := h.upstreamConditions(eth0); len(got) != 0 {
		t.Errorf("conditions %+v after the VLAN device went", got)
	}
	h.demand = demands{"eth1": {ingress: 1, taggedIngress: 1}}
	got = h.upstreamConditions(xdp.Attachment{Interface: "eth1", Index: 3, Hook: xdp.HookIngress, Mode: "native"})
	if len(got) != 1 || got[0].Code != dataplane.CodeVLANOffload {
		t.Fatalf("conditions %+v", got)
	}
	lab.Step(t, got[0].Fix, "mode: tcx for eth1") // TestTagsThatTheDeviceTakesAreAConditionUntilItsFix (dataplane/engine) counts the tags so
	if got = h.upstreamConditions(xdp.Attachment{Interface: "eth1", Index: 3, Hook: xdp.HookIngress, Mode: "tcx"}); len(got) != 0 {
		t.Errorf("conditions %+v by TCX", got)
	}
}
