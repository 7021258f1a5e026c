package ibv

import (
	"fmt"
	"reflect"
	"slices"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

// Limits of uverbs and mlx5 that hold for every device.
const (
	maxSpecs        = 10 // IB_FLOW_SPEC_SUPPORT_LAYERS
	maxFlowPriority = 15 // MLX5_BY_PASS_NUM_REGULAR_PRIOS - 1
)

// Check returns the reason why a flow will be refused, or nil if it knows none. Uverbs and drivers only return
// an errno. errors.Is finds this errno in the error of Check, and also probe.ErrNotSupported if the errno
// means it.
//
// Check knows the rules of uverbs (drivers/infiniband/core/uverbs_cmd.c) and of mlx5's parse_flow_attr
// (drivers/infiniband/hw/mlx5/fs.c). mlx5 is the only driver with counters. Nil is no promise, because each
// device has limits of its own.
func (a FlowAttr) Check() error {
	if err := areValues(a.Specs); err != nil {
		return err
	}
	if err := countsSilentlyNothing(a); err != nil {
		return err
	}

	const known = FlowDontTrap | FlowEgress
	defaultRule := a.Type == FlowAttrAllDefault || a.Type == FlowAttrMCDefault
	switch {
	case a.Type > FlowAttrSniffer:
		return refuseFlow(syscall.EOPNOTSUPP, "type %d does not exist", a.Type)
	case a.Flags&^known != 0:
		return refuseFlow(syscall.EINVAL, "flags %#x do not exist", uint32(a.Flags&^known))
	case defaultRule && a.Flags != 0:
		return refuseFlow(syscall.EINVAL, "%v takes neither DONT_TRAP nor EGRESS", a.Type)
	case len(a.Specs) > maxSpecs:
		return refuseFlow(syscall.EINVAL, "%d specs, uverbs take %d", len(a.Specs), maxSpecs)
	case a.Priority > maxFlowPriority:
		return refuseFlow(syscall.ENOMEM, "priority %d, mlx5 takes 0 to %d", a.Priority, maxFlowPriority)
	case a.Flags == FlowDontTrap|FlowEgress:
		return refuseFlow(syscall.EOPNOTSUPP, "a flow of EGRESS cannot be DONT_TRAP: packets that leave have no next table")
	case a.Type != FlowAttrNormal:
		return nil // drivers ignore the specs
	}
	return checkSpecs(a.Specs)
}

// refusedError is the reason why uverbs or mlx5 refuse a flow, or one of its specs.
type refusedError struct {
	index  int    // of the spec; -1 for the flow as a whole
	spec   string // "IPV4_EXT"; empty for the flow
	reason string
	errno  syscall.Errno
}

// refuseFlow returns a reason against the flow as a whole.
func refuseFlow(errno syscall.Errno, format string, args ...any) error {
	return &refusedError{index: -1, reason: fmt.Sprintf(format, args...), errno: errno}
}

func (e *refusedError) Error() string {
	if e.index < 0 {
		return "flow: " + e.reason
	}
	return fmt.Sprintf("spec %d (%s) of the flow: %s", e.index, e.spec, e.reason)
}

func (e *refusedError) Unwrap() error { return e.errno }

// Is reports whether target is probe.ErrNotSupported, and the errno means it.
func (e *refusedError) Is(target error) bool {
	return target == probe.ErrNotSupported && notSupported(e.errno)
}

// refusal is a rule broken by a spec. The zero value means no rule.
type refusal struct {
	errno  syscall.Errno
	reason string
}

// checkSpecs checks each spec, also against earlier ones, and each layer as a whole.
func checkSpecs(specs []Spec) error {
	var layers [2]layerCheck // outer, inner
	counts := 0
	for i, s := range specs {
		if s == nil {
			return fmt.Errorf("checking spec %d of the flow: it is nil: leave it out", i)
		}
		t := s.specType()

		layer := &layers[0]
		if t&specInner != 0 {
			layer = &layers[1]
		}
		r := layer.spec(s)

		// If another spec of this type follows, it overwrites this one before the driver checks the bits.
		overwrites := func(later Spec) bool { return later != nil && later.specType() == t }
		if r.errno == 0 && !slices.ContainsFunc(specs[i+1:], overwrites) && hasBitOutsideMask(s) {
			r = refusal{syscall.EINVAL, "a bit of the value is not in its mask"}
		}

		if t == specActionCount {
			counts++
			if counts > 1 {
				r = refusal{syscall.EINVAL, "a flow has one counters object; it may have several indices"}
			}
		}

		if r.errno != 0 {
			return &refusedError{index: i, spec: t.String(), reason: r.reason, errno: r.errno}
		}
	}

	for _, l := range layers {
		if r := l.etherType(); r.errno != 0 {
			return &refusedError{index: -1, reason: r.reason, errno: r.errno}
		}
	}
	return nil
}

// readUnderMask lists the fields of Val that mlx5 does not read if their mask is zero. Bits outside a zero mask
// are harmless in these fields.
var readUnderMask = []string{"VLANTag", "Proto", "NextHdr", "TTL", "Flags", "HopLimit", "Seq", "CKSRes0Ver"}

// hasBitOutsideMask reports whether Val has a bit outside Mask. It is mlx5_core's check_valid_spec. Actions have
// no mask.
func hasBitOutsideMask(s Spec) bool {
	spec := reflect.ValueOf(s)
	if spec.Kind() != reflect.Struct || !spec.FieldByName("Mask").IsValid() {
		return false
	}

	val, mask := spec.FieldByName("Val"), spec.FieldByName("Mask")
	for i := range val.NumField() {
		v, m := val.Field(i), mask.Field(i)
		switch name := val.Type().Field(i).Name; {
		case v.Kind() == reflect.Array:
			for b := range v.Len() {
				if v.Index(b).Uint()&^m.Index(b).Uint() != 0 {
					return true
				}
			}
		case m.IsZero() && slices.Contains(readUnderMask, name):
		case v.Uint()&^m.Uint() != 0:
			return true
		}
	}
	return false
}

// layerCheck collects the protocols required by the specs of one layer.
type layerCheck struct {
	proto, protoMask uint8
	eth, ethMask     uint16   // the EtherType to match
	ip               specType // IPV4, IPV4_EXT or IPV6; 0: no IP spec yet
	ipEtherType      uint16   // of ip
}

// spec checks one spec, also against earlier ones of its layer.
func (l *layerCheck) spec(s Spec) refusal {
	const notMatched = "mlx5 does not match the "
	switch s := s.(type) {
	case EthSpec:
		if s.Mask.EtherType != 0 {
			l.eth, l.ethMask = s.Val.EtherType, s.Mask.EtherType
		}
	case IPv4Spec:
		l.ip, l.ipEtherType = specIPv4, 0x0800
	case IPv4ExtSpec:
		l.ip, l.ipEtherType = specIPv4Ext, 0x0800
		if s.Mask.TTL != 0 || s.Mask.Flags != 0 {
			return refusal{syscall.EOPNOTSUPP, notMatched + "TTL and the flags of IPv4"}
		}
		return l.protocol(s.Val.Proto, s.Mask.Proto)
	case IPv6Spec:
		l.ip, l.ipEtherType = specIPv6, 0x86dd
		if s.Val.FlowLabel>>20 != 0 || s.Mask.FlowLabel>>20 != 0 {
			return refusal{syscall.EINVAL, "the flow label has 20 bits"}
		}
		if s.Mask.HopLimit != 0 {
			return refusal{syscall.EOPNOTSUPP, notMatched + "hop limit of IPv6"}
		}
		return l.protocol(s.Val.NextHdr, s.Mask.NextHdr)
	case TCPSpec:
		return l.protocol(6, 0xff)
	case UDPSpec:
		return l.protocol(17, 0xff)
	case GRESpec:
		if s.Mask.CKSRes0Ver != 0 {
			return refusal{syscall.EOPNOTSUPP, notMatched + "flags and version of GRE"}
		}
		return l.protocol(47, 0xff)
	case ESPSpec:
		if s.Mask.Seq != 0 {
			return refusal{syscall.EOPNOTSUPP, notMatched + "sequence number of ESP"}
		}
	case VXLANSpec:
		if s.Val.TunnelID>>24 != 0 || s.Mask.TunnelID>>24 != 0 {
			return refusal{syscall.EINVAL, "the VNI has 24 bits"}
		}
	case TagSpec:
		if s.TagID>>24 != 0 {
			return refusal{syscall.EINVAL, "the tag has 24 bits"}
		}
	case CountSpec:
		return s.refusal()
	}
	return refusal{}
}

// protocol is mlx5's set_proto: the first spec with a mask determines the protocol, and later ones must agree.
func (l *layerCheck) protocol(val, mask uint8) refusal {
	if mask == 0 {
		return refusal{}
	}
	if l.protoMask == 0 {
		l.proto, l.protoMask = val, mask
		return refusal{}
	}
	if l.protoMask != mask || l.proto != val {
		return refusal{syscall.EINVAL, fmt.Sprintf("IP protocol %d/%#x, a spec before it says %d/%#x", val, mask, l.proto, l.protoMask)}
	}
	return refusal{}
}

// etherType is mlx5's is_valid_ethertype: together with an IP spec, an EtherType must be the one of this header,
// in all bits. MPLS is also allowed if the device can match the IP version. We leave this to the device.
func (l *layerCheck) etherType() refusal {
	if l.ethMask == 0 || l.ip == 0 {
		return refusal{}
	}
	const mplsUC, mplsMC = 0x8847, 0x8848
	allBits := l.ethMask == 0xffff
	if allBits && (l.eth == l.ipEtherType || l.eth == mplsUC || l.eth == mplsMC) {
		return refusal{}
	}
	return refusal{syscall.EINVAL, fmt.Sprintf("EtherType %#04x/%#04x with a spec of %v", l.eth, l.ethMask, l.ip)}
}
