package flow_test

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane/flow"
)

func ExampleParseMatch() {
	m, err := flow.ParseMatch("tcp dport 443 ipv4 dst 192.0.2.10 src 10.0.0.0/255.0.0.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m) // the canonical form
	fmt.Println(m.TCP.Dst.Value, m.IPv4.Src.Mask)
	// Output:
	// ipv4 src 10.0.0.0/8 dst 192.0.2.10 tcp dport 443
	// 443 [255 0 0 0]
}

// Every mistake is reported, each with its place.
func ExampleParseMatch_mistakes() {
	_, err := flow.ParseMatch("ipv4 src 10.0.0.1/8 tcp dprot 80")
	var mistakes flow.ParseErrors
	if errors.As(err, &mistakes) {
		for _, m := range mistakes {
			fmt.Printf("byte %d: %s: %s\n", m.Offset, m.Word, m.Suggestion)
		}
	}
	// Output:
	// byte 9: 10.0.0.1/8: did you mean 10.0.0.0/8?
	// byte 24: dprot: did you mean "dport"?
}

// Two sets multiply. A packet that m matches matches one of the alternatives.
func ExampleMatch_Alternatives() {
	m, err := flow.ParseMatch("ipv4 src 10.0.0.5-10.0.0.6 tcp dport {80, 443}")
	if err != nil {
		fmt.Println(err)
		return
	}
	alternatives, err := m.Alternatives()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, plain := range alternatives {
		fmt.Println(plain)
	}
	// Output:
	// ipv4 src 10.0.0.5 tcp dport 80
	// ipv4 src 10.0.0.6 tcp dport 80
	// ipv4 src 10.0.0.5 tcp dport 443
	// ipv4 src 10.0.0.6 tcp dport 443
}

// A range of ports becomes the fewest masks that cover it.
func ExampleMatch_Expand() {
	m, err := flow.ParseMatch("udp dport 1000-1024")
	if err != nil {
		fmt.Println(err)
		return
	}
	masked, err := m.Expand()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, one := range masked {
		fmt.Println(one)
	}
	// Output:
	// udp dport 1000/0xfff8
	// udp dport 1008/0xfff0
	// udp dport 1024
}

// Flows that are written in a program. Options are optional: the second flow drops what it counts.
func ExampleMustParse() {
	web := flow.MustParse("web", "ipv4 dst 192.0.2.10 tcp dport 443")
	fmt.Println(web.Name, web.Direction, web.Action)
	block := flow.MustParse("block", "ipv4 src 198.51.100.0/24", flow.Options{Priority: 1, Action: flow.Drop, Backend: flow.XDP})
	fmt.Println(block.Name, block.Match, block.Priority)
	// Output:
	// web ingress count
	// block ipv4 src 198.51.100.0/24 1
}

// A flow that a user has written.
func ExampleParse() {
	_, err := flow.Parse("web", "tcp dprot 443")
	fmt.Println(err)
	fmt.Println(errors.Is(err, flow.ErrInvalid))
	// Output:
	// flow "web": parsing match: "dprot" at byte 4: expected a field of tcp (sport, dport or flags) or a protocol; did you mean "dport"?
	// true
}

// Every mistake of a flow is a FieldError.
func ExampleFlow_Validate() {
	err := flow.Flow{Name: "web/", Backend: "rmda", Labels: map[string]string{"": "x"}}.Validate()
	var first *flow.FieldError
	fmt.Println(errors.As(err, &first), first.Field, "-", first.Fix)
	// Output: true backend - did you mean "rdma"?
}

func ExampleBackends() {
	fmt.Println(flow.Backends())
	// Output: [auto rdma xdp sim]
}
