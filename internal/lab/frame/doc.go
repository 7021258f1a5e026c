// Package frame builds Ethernet frames, byte for byte, for tests and the demo.
//
// A frame is a list of layers, outermost first, put together by [Build]:
//
//	frame.Build(
//		frame.Eth{Dst: dst, Src: src}, frame.VLAN{ID: 100},
//		frame.IPv4{Src: a, Dst: b}, frame.UDP{Src: 1000, Dst: 53}, frame.Payload(64),
//	)
//
// Type and protocol fields, lengths and checksums follow from the layers
// around them; a field that a layer offers for it overrides that, to build
// frames that lie. Nothing here is meant for the hot path: build the frames
// once, then let a sender repeat them.
//
// The package is portable, keeps no state and may be used from any goroutine.
package frame
