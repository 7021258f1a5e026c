package cli

// outputFlag is -o. Every command that prints data embeds it.
type outputFlag struct {
	Output string `short:"o" help:"How data is printed: ${enum}." enum:"table,json" default:"table"`
}

func (f outputFlag) json() bool { return f.Output == "json" }
