package output

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// JSON writes a value with indentation and leaves <, > and & as they are. The writer remembers its errors.
func JSON(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	enc.Encode(v)
}

// JSONSeq writes an array with an element per line, without holding all
// elements in memory.
func JSONSeq[T any](w io.Writer, seq iter.Seq[T]) error {
	before := "[\n  "
	for v := range seq {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s%s", before, b); err != nil {
			return err
		}
		before = ",\n  "
	}
	if before == "[\n  " {
		_, err := io.WriteString(w, "[]\n")
		return err
	}
	_, err := io.WriteString(w, "\n]\n")
	return err
}
