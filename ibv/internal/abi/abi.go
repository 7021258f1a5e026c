// Package abi holds the C header that package ibv and the software NIC share, verbs_abi.h. Both import this package,
// so that the go command rebuilds them when the header changes, and vendors it.
package abi

import _ "embed"

//go:embed verbs_abi.h
var verbs string

// VerbsHeader returns the text of verbs_abi.h.
func VerbsHeader() string { return verbs }
