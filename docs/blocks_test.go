//go:build linux

package docs

import (
	"regexp"
	"strings"
)

// block is a part of a document that is not prose: fenced, with its info string's words,
// or indented by four columns and more, with none.
type block struct {
	info []string
	text string
}

// blocks returns the blocks of a document in their order.
func blocks(text string) (list []block) {
	var open *block
	fenced, blank := false, true
	for line := range strings.Lines(text) {
		bare := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(bare, "```"):
			if fenced = !fenced; fenced {
				list = append(list, block{info: strings.Fields(bare[3:])})
				open = &list[len(list)-1]
			} else {
				open = nil
			}
		case fenced:
			open.text += line
		case strings.HasPrefix(line, "    ") && bare != "" && (open != nil || blank):
			if open == nil {
				list = append(list, block{})
				open = &list[len(list)-1]
			}
			open.text += strings.TrimPrefix(line, "    ")
		case bare != "":
			open = nil
		}
		blank = bare == ""
	}
	return list
}

// command is a line that a reader types, and what the document shows of its output.
type command struct {
	line  string
	shown []string
}

// commandLine is how a command begins where no line of a block has a prompt: after variables,
// with a program that the documents use.
var commandLine = regexp.MustCompile(
	`^([A-Z_]+=\S+ )*(ehasm|make|perf|cc|gcc|as|objcopy|go|diff|LD_LIBRARY_PATH=\S+|\./program)( |$)`)

// remark is what stands beside a command: after two spaces, or as a comment.
var remark = regexp.MustCompile(`\s{2,}\S.*$|\s+#.*$`)

// commands returns what a block has a reader type: the lines after "$ ", or, without such lines, those that begin as
// commands do.
func (b block) commands() (list []command) {
	lines := strings.Split(strings.TrimRight(b.text, "\n"), "\n")
	prompt := strings.Contains("\n"+b.text, "\n$ ") || strings.Contains(b.text, "  $ ")
	for _, line := range lines {
		bare := strings.TrimSpace(line)
		last := len(list) - 1
		switch {
		case prompt && strings.HasPrefix(bare, "$ "):
			list = append(list, command{line: bare[2:]})
		case prompt && last >= 0 && strings.HasSuffix(list[last].line, `\`):
			list[last].line += "\n" + line
		case prompt && last >= 0:
			list[last].shown = append(list[last].shown, line)
		case !prompt && commandLine.MatchString(bare):
			list = append(list, command{line: remark.ReplaceAllString(bare, "")})
		}
	}
	return list
}
