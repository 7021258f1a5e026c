// Package configs reads and writes the YAML configuration of an instance:
//
//	cfg, err := configs.Load("/etc/flowtally/lb.yaml")
//
// The returned [dataplane.Config] is valid and ready for plugin.Launch or engine.New. Otherwise the [Error] has every
// mistake of the file, with its line and, if possible, a correction. Missing and empty fields are zero in the Config.
//
// docs/configuration.md describes every key. [Sample] returns a commented file to start from.
//
// Anchors, aliases, merge keys and tags of YAML are errors, so that readers of a file find each value in its place.
//
// # Matches
//
// Write a match as text, in the form of package flow, or as a mapping of its clauses:
//
//	match: ipv4 src 10.0.0.0/8 tcp dport 443
//	match: {ipv4: {src: 10.0.0.0/8}, tcp: {dport: 443}}
//
// In a mapping, a protocol without fields has no value, two VLAN tags are a list, and inner is a field of a tunnel:
//
//	match:
//	  vlan: [{id: 100}, {id: 7}]
//	  ipv4:
//	  vxlan: {vni: 5, inner: {tcp: {dport: 80}}}
//
// # Sets
//
// A set has its elements in the configuration, in a file, or in both:
//
//	sets:
//	  blocklist: {file: block.txt, elements: [10.0.0.0/8, "2001:db8::/32"]}
//	flows:
//	  - {name: blocked, match: ipv4 src @blocklist}
//
// In a mapping the name of a set is quoted: a value of YAML cannot begin with @.
//
// # Addresses of queue pairs
//
// Write the address of a peer as `flowtally queue-pairs list` prints it, or as a mapping of its fields:
//
//	peer: gid=fe80::1,qpn=17,psn=4660
//	peer: {gid: "fe80::1", qpn: 17, psn: 0x1234}
package configs
