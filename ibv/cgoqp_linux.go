//go:build cgo

package ibv

// #include "verbs_linux.h"
import "C"

import "syscall"

func (v *cVerbs) modifyQP(qp handle, a *QPAttr, mask QPAttrMask) syscall.Errno {
	c := cQPAttr(a)
	return syscall.Errno(C.ft_modify_qp(v.t, C.uintptr_t(qp), &c, C.uint32_t(mask)))
}

func (v *cVerbs) queryQP(qp handle, mask QPAttrMask) (QPAttr, syscall.Errno) {
	var c C.struct_ibv_qp_attr
	if errno := C.ft_query_qp(v.t, C.uintptr_t(qp), C.uint32_t(mask), &c); errno != 0 {
		return QPAttr{}, syscall.Errno(errno)
	}
	return goQPAttr(&c), 0
}

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func cQPCap(q QPCap) C.struct_ibv_qp_cap {
	return C.struct_ibv_qp_cap{
		max_send_wr:     C.uint32_t(q.MaxSendWR),
		max_recv_wr:     C.uint32_t(q.MaxRecvWR),
		max_send_sge:    C.uint32_t(q.MaxSendSGE),
		max_recv_sge:    C.uint32_t(q.MaxRecvSGE),
		max_inline_data: C.uint32_t(q.MaxInlineData),
	}
}

func goQPCap(c *C.struct_ibv_qp_cap) QPCap {
	return QPCap{
		MaxSendWR:     uint32(c.max_send_wr),
		MaxRecvWR:     uint32(c.max_recv_wr),
		MaxSendSGE:    uint32(c.max_send_sge),
		MaxRecvSGE:    uint32(c.max_recv_sge),
		MaxInlineData: uint32(c.max_inline_data),
	}
}

func cQPAttr(a *QPAttr) C.struct_ibv_qp_attr {
	return C.struct_ibv_qp_attr{
		qp_state:            C.uint32_t(a.State),
		cur_qp_state:        C.uint32_t(a.CurState),
		path_mtu:            C.uint32_t(a.PathMTU),
		path_mig_state:      C.uint32_t(a.PathMigState),
		qkey:                C.uint32_t(a.QKey),
		rq_psn:              C.uint32_t(a.RQPSN),
		sq_psn:              C.uint32_t(a.SQPSN),
		dest_qp_num:         C.uint32_t(a.DestQPNum),
		qp_access_flags:     C.uint(a.AccessFlags),
		cap:                 cQPCap(a.Cap),
		ah_attr:             cAHAttr(&a.AH),
		alt_ah_attr:         cAHAttr(&a.AltAH),
		pkey_index:          C.uint16_t(a.PKeyIndex),
		alt_pkey_index:      C.uint16_t(a.AltPKeyIndex),
		en_sqd_async_notify: C.uint8_t(cBool(a.EnSQDAsyncNotify)),
		max_rd_atomic:       C.uint8_t(a.MaxRdAtomic),
		max_dest_rd_atomic:  C.uint8_t(a.MaxDestRdAtomic),
		min_rnr_timer:       C.uint8_t(a.MinRNRTimer),
		port_num:            C.uint8_t(a.PortNum),
		timeout:             C.uint8_t(a.Timeout),
		retry_cnt:           C.uint8_t(a.RetryCnt),
		rnr_retry:           C.uint8_t(a.RNRRetry),
		alt_port_num:        C.uint8_t(a.AltPortNum),
		alt_timeout:         C.uint8_t(a.AltTimeout),
		rate_limit:          C.uint32_t(a.RateLimit),
	}
}

func goQPAttr(c *C.struct_ibv_qp_attr) QPAttr {
	return QPAttr{
		State:            QPState(c.qp_state),
		CurState:         QPState(c.cur_qp_state),
		PathMTU:          MTU(c.path_mtu),
		PathMigState:     MigState(c.path_mig_state),
		QKey:             uint32(c.qkey),
		RQPSN:            uint32(c.rq_psn),
		SQPSN:            uint32(c.sq_psn),
		DestQPNum:        uint32(c.dest_qp_num),
		AccessFlags:      AccessFlags(c.qp_access_flags),
		Cap:              goQPCap(&c.cap),
		AH:               goAHAttr(&c.ah_attr),
		AltAH:            goAHAttr(&c.alt_ah_attr),
		PKeyIndex:        uint16(c.pkey_index),
		AltPKeyIndex:     uint16(c.alt_pkey_index),
		EnSQDAsyncNotify: c.en_sqd_async_notify != 0,
		SQDraining:       c.sq_draining != 0,
		MaxRdAtomic:      uint8(c.max_rd_atomic),
		MaxDestRdAtomic:  uint8(c.max_dest_rd_atomic),
		MinRNRTimer:      uint8(c.min_rnr_timer),
		PortNum:          uint8(c.port_num),
		Timeout:          uint8(c.timeout),
		RetryCnt:         uint8(c.retry_cnt),
		RNRRetry:         uint8(c.rnr_retry),
		AltPortNum:       uint8(c.alt_port_num),
		AltTimeout:       uint8(c.alt_timeout),
		RateLimit:        uint32(c.rate_limit),
	}
}

// cAHAttr copies the GID as 16 bytes, which is what cgo makes of the union.
func cAHAttr(a *AHAttr) C.struct_ibv_ah_attr {
	return C.struct_ibv_ah_attr{
		grh: C.struct_ibv_global_route{
			dgid:          a.GRH.DGID,
			flow_label:    C.uint32_t(a.GRH.FlowLabel),
			sgid_index:    C.uint8_t(a.GRH.SGIDIndex),
			hop_limit:     C.uint8_t(a.GRH.HopLimit),
			traffic_class: C.uint8_t(a.GRH.TrafficClass),
		},
		dlid:          C.uint16_t(a.DLID),
		sl:            C.uint8_t(a.SL),
		src_path_bits: C.uint8_t(a.SrcPathBits),
		static_rate:   C.uint8_t(a.StaticRate),
		is_global:     C.uint8_t(cBool(a.IsGlobal)),
		port_num:      C.uint8_t(a.PortNum),
	}
}

func goAHAttr(c *C.struct_ibv_ah_attr) AHAttr {
	return AHAttr{
		GRH: GlobalRoute{
			DGID:         c.grh.dgid,
			FlowLabel:    uint32(c.grh.flow_label),
			SGIDIndex:    uint8(c.grh.sgid_index),
			HopLimit:     uint8(c.grh.hop_limit),
			TrafficClass: uint8(c.grh.traffic_class),
		},
		DLID:        uint16(c.dlid),
		SL:          uint8(c.sl),
		SrcPathBits: uint8(c.src_path_bits),
		StaticRate:  uint8(c.static_rate),
		IsGlobal:    c.is_global != 0,
		PortNum:     uint8(c.port_num),
	}
}
