// Package depstmp pins the chosen dependencies until every package imports its own; it goes away with the last of them.
package depstmp

import (
	_ "github.com/alecthomas/kong"
	_ "github.com/cilium/ebpf"
	_ "github.com/cilium/ebpf/asm"
	_ "github.com/cilium/ebpf/btf"
	_ "github.com/cilium/ebpf/features"
	_ "github.com/cilium/ebpf/link"
	_ "github.com/cilium/ebpf/rlimit"
	_ "github.com/edsrzf/mmap-go"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/gopacket/gopacket"
	_ "github.com/gopacket/gopacket/layers"
	_ "github.com/hashicorp/go-hclog"
	_ "github.com/hashicorp/go-plugin"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/vishvananda/netlink"
	_ "github.com/vishvananda/netns"
	_ "go.yaml.in/yaml/v4"
	_ "golang.org/x/sys/unix"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails"
	_ "google.golang.org/grpc"
	_ "google.golang.org/protobuf/proto"
	_ "pgregory.net/rapid"
)
