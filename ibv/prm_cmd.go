package ibv

import "fmt"

// Opcodes of the commands (mlx5_ifc.h, MLX5_CMD_OP_*).
const (
	opQueryHCACap      = 0x100
	opAllocFlowCounter = 0x939
	opQueryFlowCounter = 0x93b
)

// Sizes in bytes of the commands' input and output.
const (
	prmInSize              = 16 // input of ALLOC_FLOW_COUNTER and QUERY_HCA_CAP
	prmOutSize             = 16 // status, syndrome, and the first words of the command's own output
	queryFlowCounterInSize = 32
	trafficCounterSize     = 16
	hcaCapSize             = 0x1000
)

// prmHeader encodes the head of every command. Leave the user id 0: the kernel fills in that of libmlx5's
// context.
func prmHeader(c *prmCodec, op, mod uint16) {
	field(c, "opcode", 0x00, 0x10, &op)
	field(c, "op_mod", 0x30, 0x10, &mod)
}

// prmStatus is the head of every output.
type prmStatus struct {
	Status   uint8
	Syndrome uint32
}

func (s *prmStatus) prm(c *prmCodec) {
	field(c, "status", 0x00, 0x08, &s.Status)
	field(c, "syndrome", 0x20, 0x20, &s.Syndrome)
}

// String describes the firmware's status for errors. Only the vendor knows the meaning of the syndrome.
func (s prmStatus) String() string {
	name, ok := map[uint8]string{
		0x01: "internal error", 0x02: "bad operation", 0x03: "bad parameter", 0x04: "bad system state",
		0x05: "bad resource", 0x06: "resource busy", 0x08: "limit exceeded", 0x09: "bad resource state",
		0x0a: "bad index", 0x0f: "no resources", 0x50: "bad input length", 0x51: "bad output length",
		0x10: "bad queue pair state", 0x30: "bad packet", 0x40: "too many outstanding completions",
	}[s.Status]
	if !ok {
		name = "unknown status"
	}
	return fmt.Sprintf("%s (status %#x, syndrome %#x)", name, s.Status, s.Syndrome)
}

// allocFlowCounterIn is struct mlx5_ifc_alloc_flow_counter_in_bits. Set the number of counters either in
// BulkLogSize or in Bulk. If both are 0, it is one counter.
type allocFlowCounterIn struct {
	BulkLogSize uint8 // 2^n counters
	Bulk        uint8 // a power of two: 128 times this number
}

func (a *allocFlowCounterIn) prm(c *prmCodec) {
	prmHeader(c, opAllocFlowCounter, 0)
	field(c, "flow_counter_bulk_log_size", 0x73, 0x05, &a.BulkLogSize)
	field(c, "flow_counter_bulk", 0x78, 0x08, &a.Bulk)
}

// allocFlowCounterOut is struct mlx5_ifc_alloc_flow_counter_out_bits.
type allocFlowCounterOut struct {
	prmStatus
	FlowCounterID uint32
}

func (a *allocFlowCounterOut) prm(c *prmCodec) {
	a.prmStatus.prm(c)
	field(c, "flow_counter_id", 0x40, 0x20, &a.FlowCounterID)
}

// queryFlowCounterIn is struct mlx5_ifc_query_flow_counter_in_bits without dump_to_memory. We get the values
// in the output, so there is no memory region.
type queryFlowCounterIn struct {
	Clear         bool
	NumOfCounters uint32 // from FlowCounterID on; 0 has the same result as 1
	FlowCounterID uint32
}

func (q *queryFlowCounterIn) prm(c *prmCodec) {
	prmHeader(c, opQueryFlowCounter, 0)
	flag(c, "clear", 0xc0, &q.Clear)
	field(c, "num_of_counters", 0xc2, 0x1e, &q.NumOfCounters)
	field(c, "flow_counter_id", 0xe0, 0x20, &q.FlowCounterID)
}

// Capability types of QUERY_HCA_CAP.
const (
	hcaCapGeneral = 0x00
	hcaCap2       = 0x20
)

// queryHCACapIn is struct mlx5_ifc_query_hca_cap_in_bits.
type queryHCACapIn struct {
	Type uint16
}

// The lowest bit of the operation modifier asks for the current values instead of the device's maxima.
func (q *queryHCACapIn) prm(c *prmCodec) { prmHeader(c, opQueryHCACap, q.Type<<1|1) }

// hcaCap is the part of struct mlx5_ifc_cmd_hca_cap_bits about counters and matches.
type hcaCap struct {
	HCACap2              bool   // there is a second structure
	FlowCounterBulkAlloc uint8  // bit n: bulks of 128<<n
	FlexParserProtocols  uint32 // flexICMP and others
}

// Bits of flex_parser_protocols, for matches on misc_3.
const (
	flexICMP   = 1 << 8
	flexICMPv6 = 1 << 9
)

func (h *hcaCap) prm(c *prmCodec) {
	flag(c, "hca_cap_2", 0x20, &h.HCACap2)
	field(c, "flow_counter_bulk_alloc", 0x310, 0x08, &h.FlowCounterBulkAlloc)
	field(c, "flex_parser_protocols", 0x540, 0x20, &h.FlexParserProtocols)
}

// hcaCap2Fields is the part of struct mlx5_ifc_cmd_hca_cap_2_bits about counters.
type hcaCap2Fields struct {
	FlowCounterBulkLogMaxAlloc    uint8 // the largest flow_counter_bulk_log_size; 0: the device has no such field
	FlowCounterBulkLogGranularity uint8 // the smallest
}

func (h *hcaCap2Fields) prm(c *prmCodec) {
	field(c, "flow_counter_bulk_log_max_alloc", 0x253, 0x05, &h.FlowCounterBulkLogMaxAlloc)
	field(c, "flow_counter_bulk_log_granularity", 0x25b, 0x05, &h.FlowCounterBulkLogGranularity)
}
