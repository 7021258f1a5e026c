package configs

import _ "embed"

//go:embed default.yaml
var defaultYAML []byte

// Default is a configuration file to start from: every setting, explained and
// commented out with its default, and one interface.
func Default() []byte { return append([]byte(nil), defaultYAML...) }
