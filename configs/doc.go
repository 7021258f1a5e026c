// Package configs reads and writes the configuration file of an instance, in YAML. [Load] reads a file into a
// [dataplane.Config], for plugin.Launch or engine.New. [Parse] reads a text. [Marshal] writes a Config. [Sample] is a
// file to start from, with every setting explained; other samples are in this directory.
//
//	cfg, err := configs.Load("/etc/flowtally/lb.yaml")
//
// An [Error] has every mistake of a file at once, each with its line, column, source line and, if one is likely, a
// correction. dataplane.Config.Validate accepts every configuration that Parse accepts. Fields that are left out, or
// left empty, stay zero, which is the default of dataplane.Config. YAML's anchors, aliases, merge keys and tags are
// refused, so that each value stands where it is used.
//
// A match is written as text (package flow) or as a mapping of its clauses:
//
//	match: ipv4 src 10.0.0.0/8 tcp dport 443
//	match: {ipv4: {src: 10.0.0.0/8}, tcp: {dport: 443}}
//
// In the mapping a bare protocol has no value, two VLAN tags are a sequence,
// and inner stands in vxlan or gre:
//
//	match:
//	  vlan: [{id: 100}, {id: 7}]
//	  ipv4:
//	  vxlan: {vni: 5, inner: {tcp: {dport: 80}}}
//
// The address of a queue pair's other end is written as `flowtally queue-pairs list` shows
// it, or as a mapping of its fields:
//
//	peer: gid=fe80::1,qpn=17,psn=4660
//	peer: {gid: "fe80::1", qpn: 17, psn: 0x1234}
package configs
