package ibv

import "syscall"

// namedMLX5 reports every call of mlx5 to Calls.
type namedMLX5 struct {
	mlx5
	naming
}

func (n namedMLX5) supported(ctx handle) bool {
	defer n.begin("mlx5dv_is_supported").end()
	return n.mlx5.supported(ctx)
}

func (n namedMLX5) open(ctx handle) (handle, syscall.Errno) {
	defer n.begin("mlx5dv_open_device").end()
	return n.mlx5.open(ctx)
}

func (n namedMLX5) generalCmd(ctx handle, in, out []byte) syscall.Errno {
	defer n.begin("mlx5dv_devx_general_cmd").end()
	return n.mlx5.generalCmd(ctx, in, out)
}

func (n namedMLX5) createObject(ctx handle, in, out []byte) (handle, syscall.Errno) {
	defer n.begin("mlx5dv_devx_obj_create").end()
	return n.mlx5.createObject(ctx, in, out)
}

func (n namedMLX5) queryObject(obj handle, in, out []byte) syscall.Errno {
	defer n.begin("mlx5dv_devx_obj_query").end()
	return n.mlx5.queryObject(obj, in, out)
}

func (n namedMLX5) destroyObject(obj handle) syscall.Errno {
	defer n.begin("mlx5dv_devx_obj_destroy").end()
	return n.mlx5.destroyObject(obj)
}

func (n namedMLX5) createCmdComp(ctx handle) (handle, int, syscall.Errno) {
	defer n.begin("mlx5dv_devx_create_cmd_comp").end()
	return n.mlx5.createCmdComp(ctx)
}

func (n namedMLX5) destroyCmdComp(comp handle) {
	defer n.begin("mlx5dv_devx_destroy_cmd_comp").end()
	n.mlx5.destroyCmdComp(comp)
}

func (n namedMLX5) queryAsync(obj handle, in []byte, outlen int, wrID uint64, comp handle) syscall.Errno {
	defer n.begin("mlx5dv_devx_obj_query_async").end()
	return n.mlx5.queryAsync(obj, in, outlen, wrID, comp)
}

func (n namedMLX5) getAsync(comp handle, out []byte) (uint64, syscall.Errno) {
	defer n.begin("mlx5dv_devx_get_async_cmd_comp").end()
	return n.mlx5.getAsync(comp, out)
}

func (n namedMLX5) createMatcher(ctx handle, mask []byte, criteria uint8, priority uint16, flags FlowFlags) (handle, syscall.Errno) {
	defer n.begin("mlx5dv_create_flow_matcher").end()
	return n.mlx5.createMatcher(ctx, mask, criteria, priority, flags)
}

func (n namedMLX5) destroyMatcher(matcher handle) syscall.Errno {
	defer n.begin("mlx5dv_destroy_flow_matcher").end()
	return n.mlx5.destroyMatcher(matcher)
}

func (n namedMLX5) createFlow(matcher handle, value []byte, counters handle, offset uint32, defaultMiss, drop bool) (handle, syscall.Errno) {
	defer n.begin("mlx5dv_create_flow").end()
	return n.mlx5.createFlow(matcher, value, counters, offset, defaultMiss, drop)
}

func (n namedMLX5) createCQ(ctx handle, o MLX5CQOptions) (handle, int, syscall.Errno) {
	defer n.begin("mlx5dv_create_cq").end()
	return n.mlx5.createCQ(ctx, o)
}

func (n namedMLX5) cqRing(cq handle) (MLX5CQ, syscall.Errno) {
	defer n.begin("mlx5dv_init_obj").end()
	return n.mlx5.cqRing(cq)
}

func (n namedMLX5) modifyObject(obj handle, in, out []byte) syscall.Errno {
	defer n.begin("mlx5dv_devx_obj_modify").end()
	return n.mlx5.modifyObject(obj, in, out)
}

func (n namedMLX5) regUMEM(ctx handle, mem []byte, access AccessFlags) (handle, uint32, syscall.Errno) {
	defer n.begin("mlx5dv_devx_umem_reg").end()
	return n.mlx5.regUMEM(ctx, mem, access)
}

func (n namedMLX5) deregUMEM(umem handle) syscall.Errno {
	defer n.begin("mlx5dv_devx_umem_dereg").end()
	return n.mlx5.deregUMEM(umem)
}

func (n namedMLX5) allocUAR(ctx handle) (uar, register handle, page uint32, errno syscall.Errno) {
	defer n.begin("mlx5dv_devx_alloc_uar").end()
	return n.mlx5.allocUAR(ctx)
}

func (n namedMLX5) freeUAR(uar handle) {
	defer n.begin("mlx5dv_devx_free_uar").end()
	n.mlx5.freeUAR(uar)
}

func (n namedMLX5) queryEQN(ctx handle, vector int) (uint32, syscall.Errno) {
	defer n.begin("mlx5dv_devx_query_eqn").end()
	return n.mlx5.queryEQN(ctx, vector)
}

func (n namedMLX5) pdNumber(pd handle) (uint32, syscall.Errno) {
	defer n.begin("mlx5dv_init_obj").end()
	return n.mlx5.pdNumber(pd)
}

func (n namedMLX5) nextHop(ah handle) ([6]byte, syscall.Errno) {
	defer n.begin("mlx5dv_init_obj").end()
	return n.mlx5.nextHop(ah)
}
