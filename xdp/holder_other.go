//go:build !linux

package xdp

type holder struct{ program uint32 }

func holderOf(int) holder               { return holder{} }
func (holder) String() string           { return "another program" }
func (holder) freed(int, string) string { return "" }
