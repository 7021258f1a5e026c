//go:build !linux

package rdma

func netdevsByNetlink(string) []portNetdev { return nil }

func switchdevByNetlink(string, string) (bool, error) { return false, nil }
