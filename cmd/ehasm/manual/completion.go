package manual

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

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

func (c Command) bash() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# bash completion for %[1]s; made by '%[1]s completion bash'
_%[1]s() {
    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} flags= i
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W '%[2]s' -- "$word")
        return
    fi
    case $verb in
    help) mapfile -t COMPREPLY < <(compgen -W '%[2]s' -- "$word"); return ;;
`, c.Name, c.names())
	for _, v := range c.Verbs {
		if v.Command {
			// The first word that is no flag begins a command with its own arguments.
			fmt.Fprintf(&b, "    %s)\n        for ((i = 2; i < COMP_CWORD; i++)); do\n            case ${COMP_WORDS[i]} in -*) ;; *) return ;; esac\n        done\n        flags='%s' ;;\n", v.Name, v.longNames())
			continue
		}
		fmt.Fprintf(&b, "    %s) flags='%s' ;;\n", v.Name, v.longNames())
	}
	fmt.Fprintf(&b, `    esac
    case $word in -*) mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word") ;; esac
}
complete -o default -o bashdefault -F _%[1]s %[1]s
`, c.Name)
	return b.String()
}

func (v Verb) longNames() string {
	var names []string
	v.flags(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return strings.Join(names, " ")
}

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
		fmt.Fprintf(&b, "    %s)\n        _arguments", v.Name)
		v.flags(func(f *pflag.Flag) {
			value, usage := pflag.UnquoteUsage(f)
			usage = strings.NewReplacer("[", "(", "]", ")", ":", " -").Replace(usage)
			spec := "--" + f.Name
			if takesValue(f) {
				spec += "="
			}
			spec += "[" + usage + "]"
			if takesValue(f) {
				spec += ":" + strings.ReplaceAll(value, ":", "") + ":_files"
			}
			fmt.Fprintf(&b, " \\\n            %s", quoteShell(spec))
		})
		rest := "*:file:_files"
		if v.Command {
			rest = "*::command:_normal"
		}
		fmt.Fprintf(&b, " \\\n            %s ;;\n", quoteShell(rest))
	}
	fmt.Fprintf(&b, "    esac\n}\nif [ \"$funcstack[1]\" = _%[1]s ]; then _%[1]s \"$@\"; else compdef _%[1]s %[1]s; fi\n", c.Name)
	return b.String()
}

func (c Command) fish() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion for %[1]s; made by '%[1]s completion fish'\n", c.Name)
	for _, v := range c.Verbs {
		fmt.Fprintf(&b, "complete -c %s -n __fish_use_subcommand -f -a %s -d %s\n", c.Name, v.Name, quoteShell(v.Brief))
	}
	for _, v := range c.Verbs {
		v.flags(func(f *pflag.Flag) {
			_, usage := pflag.UnquoteUsage(f)
			fmt.Fprintf(&b, "complete -c %s -n '__fish_seen_subcommand_from %s' -l %s", c.Name, v.Name, f.Name)
			if f.Shorthand != "" {
				fmt.Fprintf(&b, " -s %s", f.Shorthand)
			}
			if takesValue(f) {
				b.WriteString(" -r")
			}
			fmt.Fprintf(&b, " -d %s\n", quoteShell(usage))
		})
	}
	return b.String()
}

// quoteShell puts text in single quotes.
func quoteShell(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
