package cli

// outputFlag is -o, of every command that prints data.
type outputFlag struct {
	Output string `short:"o" help:"How data is printed: ${enum}." enum:"table,json" default:"table"`
}

func (f outputFlag) json() bool { return f.Output == "json" }
