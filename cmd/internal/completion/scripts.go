package completion

// Script returns the script for a shell: bash, zsh or fish.
func Script(shell string) string { return scripts[shell] }

var scripts = map[string]string{
	// Bash breaks words at ":" and "=", but names and flags contain both. So we split the line at blanks ourselves, and
	// then cut off what bash takes for the previous words. Bash inserts a candidate without quoting it. We quote each,
	// because names and labels come from the writer of a mirror, who may be hostile.
	"bash": `# flowtally: source <(flowtally completion bash)
_flowtally() {
	local IFS=$' \t\n' line="${COMP_LINE:0:COMP_POINT}" cur="${COMP_WORDS[COMP_CWORD]}" words found
	read -ra words <<<"$line"
	[[ "$line" == *[[:blank:]] ]] && words+=("")
	[[ "$cur" == [:=] ]] && cur=""
	local before="${words[-1]%"$cur"}"
	mapfile -t found < <("${words[0]}" __complete -- "${words[@]:1}" 2>/dev/null)
	COMPREPLY=()
	((${#found[@]})) && mapfile -t COMPREPLY < <(printf '%q\n' "${found[@]#"$before"}")
}
complete -o default -F _flowtally flowtally
`,
	// If zsh autoloads the file from fpath, it runs the file as the function on the first completion.
	"zsh": `#compdef flowtally
# flowtally: source <(flowtally completion zsh)
_flowtally() {
	local -a found
	found=("${(@f)$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n "${found[*]}" ]]; then compadd -a found; else _files; fi
}
if [[ "${funcstack[1]}" == _flowtally ]]; then _flowtally "$@"; else compdef _flowtally flowtally; fi
`,
	// Fish drops an empty word unless it is quoted.
	"fish": `# flowtally: flowtally completion fish | source
function __flowtally_complete
	set -l words (commandline -opc)
	set -l cur (commandline -ct)
	set -l found (flowtally __complete -- $words[2..] "$cur" 2>/dev/null)
	if set -q found[1]
		string join \n -- $found
	else
		__fish_complete_path "$cur"
	end
end
complete -c flowtally -f -a '(__flowtally_complete)'
`,
}
