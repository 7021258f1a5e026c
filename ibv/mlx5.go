package ibv

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

// mlx5 is the part of libmlx5 used by this package. It has no functions to destroy flows and contexts: use
// verbs.destroyFlow and verbs.closeDevice.
type mlx5 interface {
	unload()
	offsets() bool // whether a flow can name any counter of a bulk, not only the first
	supported(ctx handle) bool
	open(ctx handle) (handle, syscall.Errno)

	generalCmd(ctx handle, in, out []byte) syscall.Errno
	createObject(ctx handle, in, out []byte) (handle, syscall.Errno)
	queryObject(obj handle, in, out []byte) syscall.Errno
	destroyObject(obj handle) syscall.Errno

	createCmdComp(ctx handle) (h handle, fd int, errno syscall.Errno)
	destroyCmdComp(comp handle)
	queryAsync(obj handle, in []byte, outlen int, wrID uint64, comp handle) syscall.Errno
	getAsync(comp handle, out []byte) (wrID uint64, errno syscall.Errno) // EAGAIN: no result is ready

	createMatcher(ctx handle, mask []byte, criteria uint8, priority uint16, flags FlowFlags) (handle, syscall.Errno)
	destroyMatcher(matcher handle) syscall.Errno
	createFlow(matcher handle, value []byte, counters handle, offset uint32, defaultMiss, drop bool) (handle, syscall.Errno)

	createCQ(ctx handle, o MLX5CQOptions) (cq handle, cqe int, errno syscall.Errno)
	cqRing(cq handle) (MLX5CQ, syscall.Errno)

	modifyObject(obj handle, in, out []byte) syscall.Errno
	regUMEM(ctx handle, mem []byte, access AccessFlags) (umem handle, id uint32, errno syscall.Errno)
	deregUMEM(umem handle) syscall.Errno
	allocUAR(ctx handle) (uar, register handle, page uint32, errno syscall.Errno)
	freeUAR(uar handle)
	queryEQN(ctx handle, vector int) (eqn uint32, errno syscall.Errno)
	pdNumber(pd handle) (uint32, syscall.Errno)
	nextHop(ah handle) (mac [6]byte, errno syscall.Errno) // zeros where the port is not Ethernet
	// doorbell tells the device that the requests before index were written. Without a register it only writes
	// the record. wqe is the last request.
	doorbell(record []byte, index uint32, register handle, wqe []byte)
}

// DevX is an mlx5 device opened for firmware commands. These offer more than verbs: one command reads a
// whole bulk of flow counters, and a flow can count without a queue pair and without taking the packet.
//
// A DevX is a second context of the device. The kernel allows it to processes with CAP_NET_RAW. The DevX
// holds its [Context], which receives the asynchronous events of the device.
type DevX struct {
	object
	ctx         *Context
	m           mlx5
	caps        counterCaps
	matchesICMP bool
}

// DevX opens the device for firmware commands. It returns a [probe.UnsupportedError] if there is no
// libmlx5, if the device is no mlx5 device, or if its firmware has no user contexts.
func (c *Context) DevX() (*DevX, error) {
	m, err := c.loadMLX5("DevX")
	if err != nil {
		return nil, err
	}

	// Libibverbs is a parent of its own: closing c does not free objects abandoned in the second context, so
	// their code must stay in memory.
	d := &DevX{ctx: c, m: m}
	err = d.init("DevX context", c.device, func() (handle, error) {
		if !m.supported(c.h) {
			return 0, notMLX5("DevX", c.device)
		}
		h, errno := m.open(c.h)
		return h, d.openError(errno)
	}, &c.object, &c.lib.object)
	if err != nil {
		m.unload()
		return nil, err
	}

	d.caps, d.matchesICMP = d.queryCaps()
	c.lib.log.Debug("DevX is open", "device", c.device, "counters", d.caps.String(), "offsets", m.offsets(), "icmp", d.matchesICMP)
	return d, nil
}

// loadMLX5 loads libmlx5 for a feature of the device.
func (c *Context) loadMLX5(feature string) (mlx5, error) {
	defer c.lib.opts.begin(c.device, "dlopen of libmlx5").end()
	m, err := loadMLX5(feature, c.lib.opts)
	if err != nil {
		return nil, err
	}
	return c.lib.opts.nameMLX5(m, c.device), nil
}

// openError explains the errno of mlx5dv_open_device.
func (d *DevX) openError(errno syscall.Errno) error {
	err := d.ctx.err("mlx5dv_open_device", errno)
	switch errno {
	case syscall.EPERM, syscall.EACCES:
		return fmt.Errorf("%w: DevX needs CAP_NET_RAW in the device's network namespace", err)
	case syscall.EINVAL:
		return fmt.Errorf("%w: %w", &probe.UnsupportedError{
			Feature: "DevX",
			Object:  d.device,
			Reason:  "the firmware has no user contexts",
			Fix:     "mlxconfig -d DEVICE set UCTX_EN=1, and reset the firmware",
		}, err)
	}
	return err
}

// HasOffsets reports whether flows can name any counter of a bulk. Without offsets they can name only the
// first, so allocate single counters. Offsets need rdma-core 60.2, 61.1, 62.1, or 63 and later, and a
// kernel from the same time.
func (d *DevX) HasOffsets() bool { return d.m.offsets() }

// MatchesICMP reports whether the device compares MatchMisc3. For this its flex parser must be set up for
// ICMP and ICMPv6 (mlxconfig FLEX_PARSER_PROFILE_ENABLE=2). The kernel asks the same before it offloads a
// tc rule with an ICMP type.
func (d *DevX) MatchesICMP() bool { return d.matchesICMP }

// Close closes the second context.
func (d *DevX) Close() error {
	return d.close(func(h handle) error {
		errno := d.ctx.v.closeDevice(h)
		if errno == 0 { // otherwise the context still needs the library's code
			d.m.unload()
		}
		return d.ctx.err("ibv_close_device", errno)
	})
}

// commandErr returns the error of a firmware command with the output out, or nil. Some kernels set errno for
// a bad status, others leave errno 0.
func (d *DevX) commandErr(verb string, errno syscall.Errno, out []byte) error {
	if errno == 0 && out[0] == 0 {
		return nil
	}

	var s prmStatus
	decodePRM(out, &s)
	if errno == 0 {
		errno = syscall.EIO
	}
	err := d.ctx.err(verb, errno)
	if s.Status == 0 {
		return err
	}
	return fmt.Errorf("%w: firmware status %s", err, s)
}

// counterCaps contains the possible sizes of a bulk of flow counters.
type counterCaps struct {
	bulkMask uint8 // bit n: bulks of 128<<n
	maxLog   uint8 // if not 0: bulks of 2^minLog to 2^maxLog, preferred to bulkMask
	minLog   uint8
}

func (c counterCaps) String() string {
	return fmt.Sprintf("bulk mask %#02x, up to 2^%d", c.bulkMask, c.maxLog)
}

// queryCaps reads the capabilities. If the device or the kernel refuses, it returns none, which is no
// error: single counters need none.
func (d *DevX) queryCaps() (caps counterCaps, matchesICMP bool) {
	var general hcaCap
	if err := d.queryHCACap(hcaCapGeneral, &general); err != nil {
		d.ctx.lib.log.Debug("no bulks of flow counters, no ICMP", "device", d.device, "reason", err)
		return caps, false
	}
	caps.bulkMask = general.FlowCounterBulkAlloc

	var second hcaCap2Fields
	if general.HCACap2 && d.queryHCACap(hcaCap2, &second) == nil {
		caps.maxLog = second.FlowCounterBulkLogMaxAlloc
		caps.minLog = second.FlowCounterBulkLogGranularity
	}

	const both = flexICMP | flexICMPv6
	return caps, general.FlexParserProtocols&both == both
}

// queryHCACap reads the current capabilities of a type into dst.
func (d *DevX) queryHCACap(typ uint16, dst prmStruct) error {
	in, err := encodePRM(nil, prmInSize, &queryHCACapIn{Type: typ})
	if err != nil {
		return err
	}
	out := make([]byte, prmOutSize+hcaCapSize)
	errno := d.m.generalCmd(d.h, in, out)
	if err := d.commandErr("mlx5dv_devx_general_cmd", errno, out); err != nil {
		return err
	}
	decodePRM(out[prmOutSize:], dst)
	return nil
}

// errSize is a number of counters that no device could have.
var errSize = errors.New("no such size")
