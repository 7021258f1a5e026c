package ibv

import (
	"fmt"
	"reflect"
	"slices"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

// RefusedError is the reason why uverbs or mlx5 refuse a flow. They themselves return a bare errno.
// errors.Is is true for that errno, and for probe.ErrNotSupported if the errno stands for that.
type RefusedError struct {
	Index  int    // of the spec; -1 for the flow as a whole
	Spec   string // "IPV4_EXT"; empty for the flow
	Reason string
	Errno  syscall.Errno
}

func (e *RefusedError) Error() string {
	if e.Index < 0 {
		return "flow: " + e.Reason
	}
	return fmt.Sprintf("spec %d (%s) of the flow: %s", e.Index, e.Spec, e.Reason)
}

func (e *RefusedError) Unwrap() error { return e.Errno }

// Is makes errors.Is true for probe.ErrNotSupported.
func (e *RefusedError) Is(target error) bool {
	return target == probe.ErrNotSupported && notSupported(e.Errno)
}

// Limits of uverbs and mlx5 that hold for every device.
const (
	maxSpecs        = 10 // IB_FLOW_SPEC_SUPPORT_LAYERS
	maxFlowPriority = 15 // MLX5_BY_PASS_NUM_REGULAR_PRIOS - 1
)

// Check returns the reason why a flow is known to be refused, or nil. It knows the rules of uverbs
// (drivers/infiniband/core/uverbs_cmd.c) and of mlx5's parse_flow_attr
// (drivers/infiniband/hw/mlx5/fs.c), which is the only driver that counts. Nil is no promise: only
// the device knows its own limits.
func (a FlowAttr) Check() error {
	if err := countsSilentlyNothing(a); err != nil {
		return err
	}
	refuse := func(errno syscall.Errno, format string, args ...any) error {
		return &RefusedError{Index: -1, Reason: fmt.Sprintf(format, args...), Errno: errno}
	}
	defaultRule := a.Type == FlowAttrAllDefault || a.Type == FlowAttrMCDefault
	switch {
	case a.Type > FlowAttrSniffer:
		return refuse(syscall.EOPNOTSUPP, "type %d does not exist", a.Type)
	case a.Flags&^(FlowDontTrap|FlowEgress) != 0:
		return refuse(syscall.EINVAL, "flags %#x do not exist", uint32(a.Flags&^(FlowDontTrap|FlowEgress)))
	case defaultRule && a.Flags != 0:
		return refuse(syscall.EINVAL, "%v takes neither DONT_TRAP nor EGRESS", a.Type)
	case len(a.Specs) > maxSpecs:
		return refuse(syscall.EINVAL, "%d specs, uverbs take %d", len(a.Specs), maxSpecs)
	case a.Priority > maxFlowPriority:
		return refuse(syscall.ENOMEM, "priority %d, mlx5 takes 0 to %d", a.Priority, maxFlowPriority)
	}
	if a.Flags&(FlowDontTrap|FlowEgress) == FlowDontTrap|FlowEgress {
		return refuse(syscall.EOPNOTSUPP, "a flow of EGRESS cannot be DONT_TRAP: packets that leave have no next table")
	}
	if a.Type != FlowAttrNormal {
		return nil // drivers ignore the specs
	}
	return checkSpecs(a.Specs)
}

// refusal is one rule broken by one spec; the zero value means that no rule is broken.
type refusal struct {
	errno  syscall.Errno
	reason string
}

func checkSpecs(specs []Spec) error {
	var layers [2]layerCheck // outer, inner
	counts := 0
	for i, s := range specs {
		if s == nil {
			return fmt.Errorf("spec %d of the flow: nil", i)
		}
		t := s.specType()
		layer := &layers[0]
		if t&specInner != 0 {
			layer = &layers[1]
		}
		r := layer.spec(s)
		again := func(later Spec) bool { return later != nil && later.specType() == t } // it overwrites this one
		if r.errno == 0 && !slices.ContainsFunc(specs[i+1:], again) && outside(reflect.ValueOf(s)) {
			r = refusal{syscall.EINVAL, "a bit of the value is not in its mask"}
		}
		if t == specActionCount {
			if counts++; counts > 1 {
				r = refusal{syscall.EINVAL, "a flow has one counters object; it may have several indices"}
			}
		}
		if r.errno != 0 {
			return &RefusedError{Index: i, Spec: t.String(), Reason: r.reason, Errno: r.errno}
		}
	}
	for _, l := range layers {
		if r := l.etherType(); r.errno != 0 {
			return &RefusedError{Index: -1, Reason: r.reason, Errno: r.errno}
		}
	}
	return nil
}

// unread are the fields of values that mlx5 reads only with a mask, or never.
var unread = []string{"VLANTag", "Proto", "NextHdr", "TTL", "Flags", "HopLimit", "Seq", "CKSRes0Ver"}

// outside reports whether a spec's value has a bit that its mask lacks, as mlx5_core's check_valid_spec.
func outside(spec reflect.Value) bool {
	if spec.Kind() != reflect.Struct || !spec.FieldByName("Mask").IsValid() {
		return false // an action
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
		case m.IsZero() && slices.Contains(unread, name):
		case v.Uint()&^m.Uint() != 0:
			return true
		}
	}
	return false
}

// layerCheck accumulates the protocols that the specs of one layer fix.
type layerCheck struct {
	proto, protoMask  uint8
	eth, ethMask      uint16
	ip                specType // IPv4 or IPv6; 0: no IP spec yet
	ethTypeOfIPHeader uint16
}

// spec looks at one spec on its own and against those before it.
func (l *layerCheck) spec(s Spec) refusal {
	const notMatched = "mlx5 does not match the "
	switch s := s.(type) {
	case EthSpec:
		if s.Mask.EtherType != 0 {
			l.eth, l.ethMask = s.Val.EtherType, s.Mask.EtherType
		}
	case IPv4Spec:
		l.ip, l.ethTypeOfIPHeader = specIPv4, 0x0800
	case IPv4ExtSpec:
		l.ip, l.ethTypeOfIPHeader = specIPv4Ext, 0x0800
		if s.Mask.TTL != 0 || s.Mask.Flags != 0 {
			return refusal{syscall.EOPNOTSUPP, notMatched + "TTL and the flags of IPv4"}
		}
		return l.protocol(s.Val.Proto, s.Mask.Proto)
	case IPv6Spec:
		l.ip, l.ethTypeOfIPHeader = specIPv6, 0x86dd
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
	}
	return refusal{}
}

// protocol is mlx5's set_proto: the first spec with a mask fixes the protocol, and a later one must
// agree.
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

// etherType is mlx5's is_valid_ethertype: with an IP spec, a type that is matched must
// be that header's in all bits. MPLS ones are taken as well where the device matches
// the IP version, which is left to the device.
func (l *layerCheck) etherType() refusal {
	if l.ethMask == 0 || l.ip == 0 {
		return refusal{}
	}
	const mplsUC, mplsMC = 0x8847, 0x8848
	full := l.ethMask == 0xffff
	if full && (l.eth == l.ethTypeOfIPHeader || l.eth == mplsUC || l.eth == mplsMC) {
		return refusal{}
	}
	return refusal{syscall.EINVAL, fmt.Sprintf("EtherType %#04x/%#04x with a spec of %v", l.eth, l.ethMask, l.ip)}
}
