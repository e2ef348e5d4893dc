package prove

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// jury reports whether a mutant that was accepted is harmless.
type jury struct {
	t      testing.TB
	image  []byte
	table  *dwarfcfa.Table
	folder string
	idle   chan *member
	inst   []uint8 // by place: how long the instruction is that the proof has taken there; 0: none
	unread []bool  // bytes that the proof does not go by
}

func newJury(t testing.TB, name string, image []byte, table *dwarfcfa.Table) *jury {
	j := &jury{t: t, image: image, table: table, folder: t.TempDir(), idle: make(chan *member, runtime.GOMAXPROCS(0))}
	t.Cleanup(j.close)
	f, err := os.Create(filepath.Join(j.folder, "table"))
	require.NoError(t, err, name)
	require.NoError(t, gob.NewEncoder(f).Encode(table))
	require.NoError(t, f.Close())
	return j
}

// judge returns why a mutant passes; err says that it does not. part is the section that
// it is in.
func (j *jury) judge(part string, m mutant) (why string, err error) {
	mutated := bytes.Clone(j.image)
	m.apply(mutated)
	switch part {
	case "between sections":
		return part + ": nothing reads it", nil
	case ".text", ".rodata":
		if part == ".text" && j.sameInst(m) {
			return part + ": the same instruction", nil
		}
		return part + ": runs as the table says at every pc", j.run(mutated, true)
	case ".eh_frame":
		return part + ": the same at every instruction", j.frames(mutated)
	case ".note.gnu.build-id", ".note.ehasm", abi.SitesSection:
		return part + ": not claimed", nil
	case ".dynstr":
		im, err := openImage(mutated)
		if err != nil {
			return part, err
		}
		if soname, _ := im.name(uint32(im.dynamic.tags[0xe])); soname != "" {
			from := im.dynamic.tags[5] + im.dynamic.tags[0xe] // DT_STRTAB, DT_SONAME
			rest := bytes.Clone(mutated)
			copy(rest[from:from+uint64(len(soname))], j.image[from:])
			if bytes.Equal(rest, j.image) {
				return part + ": another NAME" + abi.Suffix, nil
			}
		}
		return part, fmt.Errorf("not the file's name")
	}
	return part, fmt.Errorf("in %s", part)
}

// sameInst reports whether a mutant changes one instruction that the proof goes by to
// another encoding of the same: so says package x86.
func (j *jury) sameInst(m mutant) bool {
	if len(m) != 1 {
		return false
	}
	for off := m[0].offset; off > m[0].offset-15 && off > 0; off-- {
		n := int(j.inst[off])
		if n == 0 {
			continue
		}
		if off+n < m[0].offset+len(m[0].b) {
			return false
		}
		mutated := bytes.Clone(j.image)
		m.apply(mutated)
		var was, is x86.Inst
		if x86.Decode(j.image[off:], &was) != nil || x86.Decode(mutated[off:], &is) != nil || int(was.Len) != n {
			return false
		}
		for _, i := range []*x86.Inst{&was, &is} { // how it is encoded is all the same
			i.Enc = x86.Encoding{W: i.Enc.W, L: i.Enc.L, Broadcast: i.Enc.Broadcast, DispLen: i.Enc.DispLen,
				ImmLen: i.Enc.ImmLen}
		}
		return was == is
	}
	return false
}

// frames compares the rows of the code itself at every instruction of the text that is
// reached; it is decoded by the other decoder.
func (j *jury) frames(mutated []byte) error {
	im, before, err := framesOf(j.image)
	if err != nil {
		return err
	}
	_, after, err := framesOf(mutated)
	if err != nil {
		return err
	}
	var pushed uint16 // registers that are on the stack, and still as they were
	end := im.exec.Vaddr + im.exec.Filesz
	for pc := im.exec.Vaddr; pc < end; {
		rowA, rowB := before.at(pc), after.at(pc)
		unread := j.unread[im.exec.Off+pc-im.exec.Vaddr]
		if (rowA == nil) != (rowB == nil) && !unread {
			return fmt.Errorf("another row at %#x", pc)
		}
		var a, b ownRow
		if rowA != nil && rowB != nil {
			a, b = *rowA, *rowB
		}
		for r := range a.saved { // either place is right
			if pushed>>r&1 != 0 && a.saved[r] != 0 && b.saved[r] == 0 {
				b.saved[r] = a.saved[r]
			}
		}
		if a != b && !unread {
			return fmt.Errorf("another row at %#x", pc)
		}
		var in x86.Inst
		if err := x86.Decode(im.text(pc), &in); err != nil {
			return fmt.Errorf("at %#x: %w", pc, err)
		}
		if in.Op == x86.OpPUSH {
			if in.Args[0].Kind == x86.KGPR {
				pushed |= 1 << in.Args[0].Reg
			}
		} else {
			pushed = 0
		}
		pc += uint64(in.Len)
	}
	return nil
}

func framesOf(file []byte) (*image, *ownRows, error) {
	im, err := openImage(file)
	if err != nil {
		return nil, nil, err
	}
	rows := &ownRows{}
	return im, rows, rows.read(im.fdes)
}
