//go:build !linux

package xdp

import (
	"net"
	"os"
	"runtime"

	"github.com/flowtally/flowtally/internal/kernel"
	"github.com/flowtally/flowtally/probe"
)

func supported() error {
	return &probe.UnsupportedError{Feature: "eBPF", Reason: "this is " + runtime.GOOS + ", not Linux"}
}

func lockDir(string) (*os.File, error) { return nil, supported() }

// Release says that nothing of this package works here.
func Release(string, ReleaseOptions) (Released, error) { return Released{}, supported() }

// OtherBuild says that nothing of this package works here.
func OtherBuild(string) (bool, error) { return false, supported() }

func evict(*os.File, string) (int, error) { return 0, supported() }

func xdpProgram(int) uint32 { return 0 }

func nameOf(int) string { return "" }

func interfaceByName(string) (*net.Interface, device, error) { return nil, device{}, supported() }

type holder struct{ program uint32 }

type holders struct{ kernel kernel.Kernel }

func (*holders) of(int) holder        { return holder{} }
func (holder) String() string         { return "another program" }
func (holder) fix(int, string) string { return "" }

// Probe says that nothing of this package works here.
func Probe(ifname string) []probe.Result {
	return []probe.Result{probe.Ask("eBPF", ifname, supported())}
}

// Prober makes Probe for many interfaces.
type Prober struct{}

// Probe is as the function of that name.
func (*Prober) Probe(ifname string) []probe.Result { return Probe(ifname) }
