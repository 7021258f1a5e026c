package configs_test

import (
	"fmt"

	"github.com/flowtally/flowtally/configs"
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
	// flowtally.yaml:4:16: flows[0].match: "dprot": expected a field of tcp (sport or dport) or a protocol
	//     4 |     match: tcp dprot 443
	//       |                ^^^^^
	//       = did you mean "dport"?
	// flowtally.yaml:5:38: flows[1] has no field "directon"
	//     5 |   - {name: dns, match: udp dport 53, directon: egress}
	//       |                                      ^^^^^^^^
	//       = did you mean "direction"?
}
