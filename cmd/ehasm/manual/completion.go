package manual

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// This file makes completion scripts. Each shell gets one in its language, with all words in it, so that a key press
// runs no program.

// Shells returns the names that Completion takes.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Completion returns the completion script for a shell, or false for a shell it
// does not know.
func (c Command) Completion(shell string) (script string, ok bool) {
	switch shell {
	case "bash":
		return c.bash(), true
	case "zsh":
		return c.zsh(), true
	case "fish":
		return c.fish(), true
	}
	return "", false
}

// names returns the verbs and "help", with blanks between.
func (c Command) names() string {
	var names []string
	for _, v := range c.Verbs {
		names = append(names, v.Name)
	}
	return strings.Join(append(names, "help"), " ")
}

// spellings returns a flag's name, and its letter if it has one, with their dashes.
func spellings(f *pflag.Flag) []string {
	if f.Shorthand == "" {
		return []string{"--" + f.Name}
	}
	return []string{"--" + f.Name, "-" + f.Shorthand}
}

// bashStart completes verbs and says which word is the value of which flag: bash makes words of
// "--flag", "=" and what follows.
const bashStart = `# bash completion for %[1]s; made by '%[1]s completion bash'
_%[1]s() {
    local word=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}
    local flags= valued= values= i=2
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W '%[2]s' -- "$word")
        return
    fi
    [ "$flag" != = ] || flag=${COMP_WORDS[COMP_CWORD-2]}
    [ "$word" != = ] || word=
    case $verb in
    help) mapfile -t COMPREPLY < <(compgen -W '%[2]s' -- "$word"); return ;;
`

// bashCommand, in verbs that run a command, leaves its words to the command's own completion.
const bashCommand = `        while [ "$i" -lt "$COMP_CWORD" ]; do
            case ${COMP_WORDS[i]} in
            --) i=$((i + 1)); break ;;
            -*) [ "${COMP_WORDS[i+1]}" != = ] || i=$((i + 2))
                case " $valued " in *" ${COMP_WORDS[i]} "*) i=$((i + 1)) ;; esac
                i=$((i + 1)) ;;
            *) break ;;
            esac
        done
        if [ "$i" -lt "$COMP_CWORD" ]; then
            ! declare -F _command_offset >/dev/null || _command_offset "$i"
            return
        elif [ "$i" -eq "$COMP_CWORD" ]; then
            case $word in -*) ;; *) mapfile -t COMPREPLY < <(compgen -c -- "$word"); return ;; esac
        fi
`

// bashEnd completes a flag's value, else flags, else a PID where the verb takes some. Files are the default.
const bashEnd = `    esac
    if [ "$values" = PID ]; then values=$(cd /proc && echo [0-9]*); fi
    if [ -n "$values" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
        return
    fi
    case " $valued " in *" $flag "*) return ;; esac
    case $word in -*) mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word") ;; esac
}
complete -o default -o bashdefault -F _%[1]s %[1]s
`

// bash returns the script for bash: a function with one case for each verb.
func (c Command) bash() string {
	var b strings.Builder
	fmt.Fprintf(&b, bashStart, c.Name, c.names())
	for _, v := range c.Verbs {
		v.bash(&b)
	}
	fmt.Fprintf(&b, bashEnd, c.Name)
	return b.String()
}

// bash writes what a verb takes: flags, those with a value, the words of the flag before the cursor.
func (v Verb) bash(b *strings.Builder) {
	var all, valued []string
	var values strings.Builder
	v.flags(func(f *pflag.Flag) {
		all = append(all, "--"+f.Name)
		if takesValue(f) {
			valued = append(valued, spellings(f)...)
		}
		// The kinds of values: words of a fixed list, PIDs, otherwise files, which bash completes
		// by default.
		words := strings.Join(v.Values[f.Name], " ")
		if words == "" && takesPID(f) {
			words = "PID"
		}
		if words != "" {
			fmt.Fprintf(&values, "        %s) values='%s' ;;\n", strings.Join(spellings(f), "|"), words)
		}
	})
	fmt.Fprintf(b, "    %s)\n        flags='%s'\n        valued='%s'\n", v.Name, strings.Join(all, " "),
		strings.Join(valued, " "))
	if v.Command {
		b.WriteString(bashCommand)
	}
	if v.PIDs {
		b.WriteString("        case \"$word\" in [0-9]*) values=PID ;; esac\n")
	}
	if values.Len() > 0 {
		fmt.Fprintf(b, "        case $flag in\n%s        esac\n", values.String())
	}
	b.WriteString("        ;;\n")
}

// zsh returns the script for zsh. It works as an autoloaded file of fpath and when sourced: the
// last line tells them apart.
func (c Command) zsh() string {
	var b strings.Builder
	fmt.Fprintf(&b, `#compdef %[1]s
# zsh completion for %[1]s; made by '%[1]s completion zsh'
_%[1]s() {
    local -a verbs
    verbs=(
`, c.Name)
	for _, v := range c.Verbs {
		fmt.Fprintf(&b, "        %s\n", quoteShell(v.Name+":"+v.Brief))
	}
	b.WriteString("    )\n    if (( CURRENT == 2 )); then\n        _describe verb verbs\n        return\n    fi\n    local verb=$words[2]\n    shift words; (( CURRENT-- ))\n    case $verb in\n")
	for _, v := range c.Verbs {
		v.zsh(&b)
	}
	fmt.Fprintf(&b, "    esac\n}\nif [ \"$funcstack[1]\" = _%[1]s ]; then _%[1]s \"$@\"; else compdef _%[1]s %[1]s; fi\n",
		c.Name)
	return b.String()
}

// zsh writes the call of _arguments for a verb: a specification OPTION[TEXT]:VALUE:ACTION of each
// flag, then one of the arguments (zshcompsys(1)).
func (v Verb) zsh(b *strings.Builder) {
	fmt.Fprintf(b, "    %s)\n        _arguments", v.Name)
	v.flags(func(f *pflag.Flag) {
		value, usage := pflag.UnquoteUsage(f)
		// Brackets and colons end parts of a specification.
		usage = strings.NewReplacer("[", "(", "]", ")", ":", " -").Replace(usage)
		action := "_files"
		switch {
		case v.Values[f.Name] != nil:
			action = "(" + strings.Join(v.Values[f.Name], " ") + ")"
		case takesPID(f):
			action = "_pids"
		}
		for _, spelling := range spellings(f) {
			spec := spelling + "[" + usage + "]"
			if takesValue(f) {
				after := "=" // --flag=value or --flag value
				if spelling[1] != '-' {
					after = "+"
				}
				spec = spelling + after + "[" + usage + "]:" + strings.ReplaceAll(value, ":", "") + ":" + action
			}
			fmt.Fprintf(b, " \\\n            %s", quoteShell(spec))
		}
	})
	rest := "*:file:_files"
	switch {
	case v.Command:
		rest = "*::command:_normal"
	case v.PIDs:
		rest = "*:process or core:{ _pids; _files }"
	}
	fmt.Fprintf(b, " \\\n            %s ;;\n", quoteShell(rest))
}

// fish returns the script for fish: one complete command for each verb, flag and kind of argument.
func (c Command) fish() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion for %[1]s; made by '%[1]s completion fish'\n", c.Name)
	for _, v := range c.Verbs {
		fmt.Fprintf(&b, "complete -c %s -n __fish_use_subcommand -f -a %s -d %s\n", c.Name, v.Name, quoteShell(v.Brief))
	}
	for _, v := range c.Verbs {
		within := fmt.Sprintf("complete -c %s -n '__fish_seen_subcommand_from %s'", c.Name, v.Name)
		v.flags(func(f *pflag.Flag) {
			_, usage := pflag.UnquoteUsage(f)
			fmt.Fprintf(&b, "%s -l %s", within, f.Name)
			if f.Shorthand != "" {
				fmt.Fprintf(&b, " -s %s", f.Shorthand)
			}
			switch {
			case v.Values[f.Name] != nil:
				fmt.Fprintf(&b, " -x -a %s", quoteShell(strings.Join(v.Values[f.Name], " ")))
			case takesPID(f):
				b.WriteString(" -x -a '(__fish_complete_pids)'")
			case takesValue(f):
				b.WriteString(" -r")
			}
			fmt.Fprintf(&b, " -d %s\n", quoteShell(usage))
		})
		if v.Command {
			fmt.Fprintf(&b, "%s -a '(__fish_complete_subcommand --fcs-skip=2)'\n", within)
		}
		if v.PIDs {
			fmt.Fprintf(&b, "%s -a '(__fish_complete_pids)'\n", within)
		}
	}
	return b.String()
}

// quoteShell puts text in single quotes.
func quoteShell(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
