package manual

// configurationPage returns flowtally.yaml(5): the default file verbatim, because its comments explain every key.
func configurationPage(text string) Page {
	r := newRoff("flowtally.yaml", 5, "configuration of flowtally run")
	r.section("DESCRIPTION")
	r.paragraphs("flowtally run --config FILE reads interfaces, flows and limits from a file of YAML. " +
		"flowtally check --config FILE names every mistake in it, with line and column. " +
		"The following file has every key, with its default and its meaning.")
	r.verbatim(text)
	r.seeAlso("flowtally.yaml(5)")
	return Page{"flowtally.yaml", 5, r.String()}
}

// plugin returns flowtally-plugin(8).
func plugin() Page {
	r := newRoff("flowtally-plugin", 8, "process that counts for flowtally run")
	r.section("SYNOPSIS")
	r.line(".B flowtally\\-plugin")
	r.text("[--version]")
	r.section("DESCRIPTION")
	r.paragraphs("flowtally run, and programs that embed package plugin, start flowtally-plugin and supervise it. " +
		"It loads the BPF programs, opens RDMA devices, and writes the mirror. " +
		"Started by hand without --version it prints a message and ends.\n\n" +
		"It is looked for beside flowtally, then in PATH, unless --plugin of flowtally run names it. " +
		"Root starts no plugin that other users could have written.")
	r.seeAlso("flowtally-plugin(8)")
	return Page{"flowtally-plugin", 8, r.String()}
}
