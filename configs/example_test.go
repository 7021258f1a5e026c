package configs_test

import (
	"fmt"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// A file with two mistakes: both are told at once, each with its place.
func ExampleParse() {
	_, err := configs.Parse("flowtally.yaml", []byte(`backend: sim
flows:
  - name: web
    match: tcp dprot 443
  - {name: dns, match: udp dport 53, directon: egress}
`))
	fmt.Println(err)
	// Output:
	// configuration flowtally.yaml: 2 mistakes
	// flowtally.yaml:4:16: flows[0].match: "dprot": expected a field of tcp (sport, dport or flags) or a protocol
	//     4 |     match: tcp dprot 443
	//       |                ^^^^^
	//       = did you mean "dport"?
	// flowtally.yaml:5:38: flows[1] has no field "directon"
	//     5 |   - {name: dns, match: udp dport 53, directon: egress}
	//       |                                      ^^^^^^^^
	//       = did you mean "direction"?
}

// A program writes a configuration, and reads it back.
func ExampleMarshal() {
	data, err := configs.Marshal(dataplane.Config{
		Instance: "lb", Interfaces: []dataplane.Interface{{Name: "eth0"}}, Flows: []flow.Flow{flow.MustParse("web", "tcp dport 443")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(string(data))
	back, err := configs.Parse("lb.yaml", data)
	fmt.Println(back.Flows[0].Match, err)
	// Output:
	// instance: lb
	// interfaces:
	// - eth0
	// flows:
	// - name: web
	//   match: tcp dport 443
	// tcp dport 443 <nil>
}

func ExampleLoad() {
	cfg, err := configs.Load("rdma.yaml") // this package's directory has it
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cfg.Interfaces[0].Name, cfg.RDMA.Audit)
	// Output: eth0 true
}

// Sample returns a configuration with every key, each explained.
func ExampleSample() {
	cfg, err := configs.Parse("default.yaml", configs.Sample())
	fmt.Println(cfg.Interfaces[0].Name, err)
	// Output: eth0 <nil>
}
