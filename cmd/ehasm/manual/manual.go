// Package manual makes the man pages and shell completions of a command from its --help, so that
// flags are described once.
//
//	Command, its Verbs and their flags --Page, VerbPage--> man pages
//	                                    --Completion-----> scripts for bash, zsh, fish
package manual

import "github.com/spf13/pflag"

// Command is a program with verbs, as its help describes it.
type Command struct {
	Name    string // as it is typed: ehasm
	Version string // of the program, for the foot of man pages
	Brief   string // one line, for NAME
	Help    string // what help prints for the program
	Verbs   []Verb
}

// Verb is one of a program's commands.
type Verb struct {
	Name  string // as it is typed after the program's name
	Brief string // one line, for NAME and for lists of verbs
	// Help is the text before the flags: what the verb does, a line "Usage:" with
	// indented lines below it, and more. More is what follows the flags; a line
	// "Examples:" with indented lines below it makes a section.
	Help, More string
	Flags      *pflag.FlagSet // of the verb alone
	// Command reports that the arguments are a command with its own flags.
	Command bool
	// Values are the words that flags take, by the flag's name.
	Values map[string][]string
	// PIDs reports that arguments may be PIDs, beside files.
	PIDs bool
}

// flags calls visit for each flag that help shows, in the order of help.
func (v Verb) flags(visit func(*pflag.Flag)) {
	v.Flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			visit(f)
		}
	})
}

// takesPID reports whether a flag wants PIDs.
func takesPID(f *pflag.Flag) bool {
	value, _ := pflag.UnquoteUsage(f)
	return value == "PID" || f.Name == "pid"
}

// takesValue reports whether a flag wants a value after it.
func takesValue(f *pflag.Flag) bool { return f.NoOptDefVal == "" }
