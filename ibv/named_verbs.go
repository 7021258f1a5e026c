package ibv

import "syscall"

// Calls observes every call of a verb. If a library ends the process, an implementation can tell in which verb.
// Begin is called before the verb, with the name of the device ("" for verbs of the library). End is called after
// the verb, with the number returned by Begin. Many goroutines call both, also while packets are posted and
// polled, so they must neither block nor allocate.
type Calls interface {
	Begin(device, verb string) int
	End(call int)
}

// named is a call reported to Calls. The zero value is an unreported call.
type named struct {
	calls Calls
	call  int
}

func (n named) end() {
	if n.calls != nil {
		n.calls.End(n.call)
	}
}

// begin reports the start of a call to Calls, if any. Call end on the result when the verb has returned.
func (o *Options) begin(device, verb string) named {
	if o.Calls == nil {
		return named{}
	}
	return named{o.Calls, o.Calls.Begin(device, verb)}
}

// naming is begin for the verbs of one device.
type naming struct {
	opts   *Options
	device string
}

func (n naming) begin(verb string) named { return n.opts.begin(n.device, verb) }

// name returns verbs that report every call to Calls with the device's name. Without Calls it returns v itself.
func (o *Options) name(v verbs, device string) verbs {
	if o.Calls == nil {
		return v
	}
	return namedVerbs{v, naming{o, device}}
}

// nameMLX5 is name for libmlx5.
func (o *Options) nameMLX5(m mlx5, device string) mlx5 {
	if o.Calls == nil {
		return m
	}
	return namedMLX5{m, naming{o, device}}
}

// namedVerbs reports every call of verbs to Calls. The methods without an override here call no verb of a
// device.
type namedVerbs struct {
	verbs
	naming
}

func (n namedVerbs) openDevice(name string) (handle, int, syscall.Errno) {
	defer n.begin("ibv_open_device").end()
	return n.verbs.openDevice(name)
}

func (n namedVerbs) closeDevice(ctx handle) syscall.Errno {
	defer n.begin("ibv_close_device").end()
	return n.verbs.closeDevice(ctx)
}

func (n namedVerbs) queryDevice(ctx handle, a *DeviceAttr) syscall.Errno {
	defer n.begin("ibv_query_device").end()
	return n.verbs.queryDevice(ctx, a)
}

func (n namedVerbs) queryPort(ctx handle, port uint8, a *PortAttr) syscall.Errno {
	defer n.begin("ibv_query_port").end()
	return n.verbs.queryPort(ctx, port, a)
}

func (n namedVerbs) queryGID(ctx handle, port uint8, index int, gid *GID) syscall.Errno {
	defer n.begin("ibv_query_gid").end()
	return n.verbs.queryGID(ctx, port, index, gid)
}

func (n namedVerbs) queryCompCntrCaps(ctx handle) (CompCntrCaps, syscall.Errno) {
	defer n.begin("ibv_query_comp_cntr_caps").end()
	return n.verbs.queryCompCntrCaps(ctx)
}

func (n namedVerbs) getEvent(ctx handle) (event, syscall.Errno) {
	defer n.begin("ibv_get_async_event").end()
	return n.verbs.getEvent(ctx)
}

func (n namedVerbs) ackEvent(e event) {
	defer n.begin("ibv_ack_async_event").end()
	n.verbs.ackEvent(e)
}

func (n namedVerbs) allocPD(ctx handle) (handle, syscall.Errno) {
	defer n.begin("ibv_alloc_pd").end()
	return n.verbs.allocPD(ctx)
}

func (n namedVerbs) deallocPD(pd handle) syscall.Errno {
	defer n.begin("ibv_dealloc_pd").end()
	return n.verbs.deallocPD(pd)
}

func (n namedVerbs) regMR(pd handle, mem []byte, access AccessFlags) (region, syscall.Errno) {
	defer n.begin("ibv_reg_mr").end()
	return n.verbs.regMR(pd, mem, access)
}

func (n namedVerbs) deregMR(mr handle) syscall.Errno {
	defer n.begin("ibv_dereg_mr").end()
	return n.verbs.deregMR(mr)
}

func (n namedVerbs) createAH(pd handle, a *AHAttr) (handle, syscall.Errno) {
	defer n.begin("ibv_create_ah").end()
	return n.verbs.createAH(pd, a)
}

func (n namedVerbs) destroyAH(ah handle) syscall.Errno {
	defer n.begin("ibv_destroy_ah").end()
	return n.verbs.destroyAH(ah)
}

func (n namedVerbs) createCQ(ctx handle, o CQOptions) (handle, int, syscall.Errno) {
	defer n.begin("ibv_create_cq").end()
	return n.verbs.createCQ(ctx, o)
}

func (n namedVerbs) pollCQ(cq handle, dst []WC) (int, syscall.Errno) {
	defer n.begin("ibv_poll_cq").end()
	return n.verbs.pollCQ(cq, dst)
}

func (n namedVerbs) destroyCQ(cq handle) syscall.Errno {
	defer n.begin("ibv_destroy_cq").end()
	return n.verbs.destroyCQ(cq)
}

func (n namedVerbs) createQP(pd, sendCQ, recvCQ handle, o *QPOptions) (handle, uint32, syscall.Errno) {
	defer n.begin("ibv_create_qp").end()
	return n.verbs.createQP(pd, sendCQ, recvCQ, o)
}

func (n namedVerbs) modifyQP(qp handle, a *QPAttr, mask QPAttrMask) syscall.Errno {
	defer n.begin("ibv_modify_qp").end()
	return n.verbs.modifyQP(qp, a, mask)
}

func (n namedVerbs) queryQP(qp handle, mask QPAttrMask) (QPAttr, syscall.Errno) {
	defer n.begin("ibv_query_qp").end()
	return n.verbs.queryQP(qp, mask)
}

func (n namedVerbs) destroyQP(qp handle) syscall.Errno {
	defer n.begin("ibv_destroy_qp").end()
	return n.verbs.destroyQP(qp)
}

func (n namedVerbs) postSend(qp, ah handle, wrs []SendWR) (int, syscall.Errno) {
	defer n.begin("ibv_post_send").end()
	return n.verbs.postSend(qp, ah, wrs)
}

func (n namedVerbs) postRecv(qp handle, wrs []RecvWR) (int, syscall.Errno) {
	defer n.begin("ibv_post_recv").end()
	return n.verbs.postRecv(qp, wrs)
}

func (n namedVerbs) createCompCntr(ctx handle, compMask uint32, typ CompCntrType, flags uint32) (handle, syscall.Errno) {
	defer n.begin("ibv_create_comp_cntr").end()
	return n.verbs.createCompCntr(ctx, compMask, typ, flags)
}

func (n namedVerbs) destroyCompCntr(cntr handle) syscall.Errno {
	defer n.begin("ibv_destroy_comp_cntr").end()
	return n.verbs.destroyCompCntr(cntr)
}

func (n namedVerbs) setCompCntr(cntr handle, word compCntrWord, value uint64) syscall.Errno {
	defer n.begin("ibv_set_comp_cntr").end()
	return n.verbs.setCompCntr(cntr, word, value)
}

func (n namedVerbs) incCompCntr(cntr handle, word compCntrWord, amount uint64) syscall.Errno {
	defer n.begin("ibv_inc_comp_cntr").end()
	return n.verbs.incCompCntr(cntr, word, amount)
}

func (n namedVerbs) readCompCntr(cntr handle, word compCntrWord) (uint64, syscall.Errno) {
	defer n.begin("ibv_read_comp_cntr").end()
	return n.verbs.readCompCntr(cntr, word)
}

func (n namedVerbs) attachCompCntr(qp, cntr handle, compMask uint32, ops CompCntrOps) syscall.Errno {
	defer n.begin("ibv_qp_attach_comp_cntr").end()
	return n.verbs.attachCompCntr(qp, cntr, compMask, ops)
}

func (n namedVerbs) createFlow(qp handle, blob []byte) (handle, syscall.Errno) {
	defer n.begin("ibv_create_flow").end()
	return n.verbs.createFlow(qp, blob)
}

func (n namedVerbs) destroyFlow(flow handle) syscall.Errno {
	defer n.begin("ibv_destroy_flow").end()
	return n.verbs.destroyFlow(flow)
}

func (n namedVerbs) createCounters(ctx handle, compMask uint32) (handle, syscall.Errno) {
	defer n.begin("ibv_create_counters").end()
	return n.verbs.createCounters(ctx, compMask)
}

func (n namedVerbs) attachCounters(counters handle, a CounterAttach, flow handle, compMask uint32) syscall.Errno {
	defer n.begin("ibv_attach_counters_point_flow").end()
	return n.verbs.attachCounters(counters, a, flow, compMask)
}

func (n namedVerbs) readCounters(counters handle, dst []uint64, flags ReadFlags) syscall.Errno {
	defer n.begin("ibv_read_counters").end()
	return n.verbs.readCounters(counters, dst, flags)
}

func (n namedVerbs) destroyCounters(counters handle) syscall.Errno {
	defer n.begin("ibv_destroy_counters").end()
	return n.verbs.destroyCounters(counters)
}
