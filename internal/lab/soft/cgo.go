//go:build linux && cgo

package soft

const cgo = true
