package manual

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// This file makes man pages of help texts: headings become sections, indented lines stay as they are, others are
// filled. man(7) and groff_man(7) have the macros.

// Page returns the man page of the program, section 1, in man(7) macros.
func (c Command) Page() string {
	p := &page{}
	p.title(c.Name, c.Version)
	p.section("Name")
	p.line(fmt.Sprintf(`%s \- %s`, escape(c.Name), escape(c.Brief)))
	p.sections(c.Help, "Description")
	p.section("See also")
	for i, v := range c.Verbs {
		p.line(fmt.Sprintf(`.BR %s\-%s (1)%s`, c.Name, v.Name, comma(i, len(c.Verbs))))
	}
	return p.String()
}

// VerbPage returns the man page of a verb, for NAME-VERB(1).
func (c Command) VerbPage(v Verb) string {
	p := &page{}
	name := c.Name + "-" + v.Name
	p.title(name, c.Version)
	p.section("Name")
	p.line(fmt.Sprintf(`%s \- %s`, escape(name), escape(v.Brief)))
	p.sections(v.Help, "Description")
	if v.Flags.HasFlags() {
		p.section("Options")
		v.flags(p.flag)
	}
	p.sections(v.More, "Notes")
	p.section("See also")
	p.line(fmt.Sprintf(`.BR %s (1)`, c.Name))
	return p.String()
}

// page is a man page under construction.
type page struct{ strings.Builder }

// line writes a line of troff source.
func (p *page) line(text string) {
	p.WriteString(text)
	p.WriteByte('\n')
}

// title writes the head of the page: .TH without a date, so that equal sources give equal pages,
// and neither hyphenation nor adjusted right margins, which garble names of flags and paths.
func (p *page) title(name, version string) {
	p.line(fmt.Sprintf(`.TH %s 1 "" "ehasm %s" "User Commands"`, strings.ToUpper(name), escape(version)))
	p.line(".nh")
	p.line(".ad l")
}

// section begins a section.
func (p *page) section(name string) { p.line(".SH " + strings.ToUpper(name)) }

// headings lists the lines of help texts that begin a section.
var headings = map[string]string{"Usage:": "Synopsis", "Examples:": "Examples", "Verbs:": "Verbs"}

// sections writes a help text: paragraphs under the section first, parts that a
// heading begins under their own. Synopsis comes before all others, as man pages
// have it.
func (p *page) sections(text, first string) {
	// First sort the lines into sections, then write those that are not empty.
	parts := map[string][]string{}
	order := []string{first}
	current := first
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if name, ok := headings[line]; ok {
			current = name
			if name == "Synopsis" {
				order = append([]string{name}, order...)
			} else {
				order = append(order, name)
			}
			continue
		}
		if current != first && line != "" && !strings.HasPrefix(line, " ") {
			current = first // the indented lines below a heading are over
			parts[current] = append(parts[current], "")
		}
		parts[current] = append(parts[current], line)
	}
	for _, name := range order {
		if lines := trimBlank(parts[name]); len(lines) > 0 {
			p.section(name)
			p.body(lines)
		}
	}
}

// body writes lines: indented ones verbatim, others as filled paragraphs.
func (p *page) body(lines []string) {
	literal := false
	for i, line := range lines {
		indented := strings.HasPrefix(line, "  ")
		if line == "" {
			// A blank line between indented lines belongs to them.
			if literal && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  ") {
				p.line("")
				continue
			}
			if literal {
				p.line(".fi")
				literal = false
			}
			p.line(".PP")
			continue
		}
		if indented != literal {
			if literal = indented; literal {
				p.line(".nf")
			} else {
				p.line(".fi")
			}
		}
		p.line(escape(line))
	}
	if literal {
		p.line(".fi")
	}
}

// flag writes an option with its explanation.
func (p *page) flag(f *pflag.Flag) {
	value, usage := pflag.UnquoteUsage(f)
	p.line(".TP")
	names := `\fB\-\-` + escape(f.Name) + `\fR`
	if f.Shorthand != "" {
		names = `\fB\-` + escape(f.Shorthand) + `\fR, ` + names
	}
	switch {
	case value == "":
	case takesValue(f):
		names += `=\fI` + escape(value) + `\fR`
	default:
		names += `[=\fI` + escape(value) + `\fR]`
	}
	p.line(names)
	if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "[]" && d != "0s" { // zero values are no news
		usage += fmt.Sprintf(" (default %s)", d)
	}
	p.line(escape(usage))
}

// comma returns what follows item i of n: a comma, except after the last.
func comma(i, n int) string {
	if i+1 < n {
		return ","
	}
	return ""
}

// trimBlank removes empty lines at both ends.
func trimBlank(lines []string) []string {
	for len(lines) > 0 && lines[0] == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// escape protects text from troff: backslashes, hyphens that must stay hyphens,
// control lines.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
