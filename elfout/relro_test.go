package elfout

import (
	"bytes"
	"debug/elf"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/internal/testing/elfouttest"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

func relro(t testing.TB, code *asmgen.Code) *Image {
	t.Helper()
	src := testSource
	src.Relro = true
	im, err := New(code, src)
	require.NoError(t, err)
	return im
}

// TestRelro lays out images whose code ends at every fourth place of a page. The
// dynamic section is alone on its page of memory, which is all of the segment
// and of PT_GNU_RELRO up to its end.
func TestRelro(t *testing.T) {
	for extra := 0; extra < 2*pageSize; extra += 4 {
		code := elfouttest.Tiny()
		code.Text = append(code.Text, make([]byte, extra)...)
		im := relro(t, code)
		f := open(t, im)
		var loads []*elf.Prog
		seen := map[elf.ProgType]*elf.Prog{}
		for _, p := range f.Progs {
			seen[p.Type] = p
			if p.Type == elf.PT_LOAD {
				loads = append(loads, p)
			}
		}
		require.Len(t, f.Progs, 8)
		require.Len(t, loads, 3)
		text, data := loads[1], loads[2]
		require.Equal(t, elf.PF_R, loads[0].Flags)
		require.Equal(t, elf.PF_R|elf.PF_X, text.Flags)
		require.Equal(t, elf.PF_R|elf.PF_W, data.Flags)
		require.Equal(t, data.Off%pageSize, data.Vaddr%pageSize)
		require.Less(t, (text.Vaddr+text.Memsz-1)/pageSize, data.Vaddr/pageSize, "another page")
		require.Zero(t, (data.Vaddr+data.Memsz)%pageSize, "up to the end of a page")
		require.LessOrEqual(t, data.Memsz, uint64(pageSize), "one page")

		r, d, s := seen[elf.PT_GNU_RELRO], seen[elf.PT_DYNAMIC], f.Section(".dynamic")
		require.Equal(t, elf.PF_R, r.Flags)
		require.Equal(t, elf.PF_R|elf.PF_W, d.Flags)
		require.Equal(t, elf.SHF_ALLOC|elf.SHF_WRITE, s.Flags)
		require.Equal(t, [3]uint64{data.Vaddr, data.Filesz, data.Memsz}, [3]uint64{r.Vaddr, r.Filesz, r.Memsz})
		require.Equal(t, [3]uint64{data.Off, data.Vaddr, data.Filesz}, [3]uint64{d.Off, d.Vaddr, d.Filesz})
		require.Equal(t, [3]uint64{data.Off, data.Vaddr, data.Filesz}, [3]uint64{s.Offset, s.Addr, s.Size})
	}
}

// TestRelroElse: the option moves the dynamic section and changes nothing else of
// what is loaded.
func TestRelroElse(t *testing.T) {
	plain, im := tiny(t), relro(t, elfouttest.Tiny())
	require.Less(t, im.Size(), plain.Size()+2*phdrSize+256, "no page of padding")
	a, b := open(t, plain), open(t, im)
	for _, s := range a.Sections {
		o := b.Section(s.Name)
		require.NotNil(t, o, s.Name)
		if s.Name != ".dynamic" {
			require.Equal(t, s.Flags, o.Flags, s.Name)
		}
		if s.Name != ".shstrtab" {
			require.Equal(t, s.Size, o.Size, s.Name)
		}
	}
	require.Len(t, b.Sections, len(a.Sections)+1)
	got, err := b.DynString(elf.DT_SONAME)
	require.NoError(t, err)
	require.Equal(t, []string{testSource.Soname()}, got)
	for _, name := range []string{abi.SymbolStep, abi.SymbolWalk} {
		v, err := lookupGNU(b, name)
		require.NoError(t, err)
		w, err := lookupSysV(b, name)
		require.NoError(t, err)
		require.Equal(t, v, w)
	}
	for _, c := range []struct {
		im   *Image
		want bool
	}{{plain, false}, {im, true}} {
		info, err := ReadInfo(bytes.NewReader(c.im.Bytes()))
		require.NoError(t, err)
		require.Equal(t, c.want, info.Relro)
	}
}

// TestRelroTools has the file read by readelf and eu-elflint and loaded by glibc
// and musl, as it is and stripped. Once it is loaded nothing of it is writable.
func TestRelroTools(t *testing.T) {
	testtool.Need(t, "readelf", "eu-elflint", "strip")
	loaders := map[string]string{"glibc": compiled(t, "-ldl"), "musl": compiledMusl(t)}
	whole := elfouttest.Tiny() // whose .dynamic ends with its page
	for relro(t, whole).padding.size > 0 {
		whole.Text = append(whole.Text, 0xcc)
	}
	for name, code := range map[string]*asmgen.Code{"tiny": elfouttest.Tiny(), "no padding": whole} {
		path := written(t, relro(t, code))
		for range 2 {
			out := runTool(t, "readelf", "-aW", path)
			require.NotRegexp(t, `(?i)warning|error|corrupt|<unknown|bad `, out)
			lint, _ := exec.Command("eu-elflint", "--gnu-ld", path).CombinedOutput()
			for _, line := range strings.Split(strings.TrimSpace(string(lint)), "\n") {
				// an owner that it does not know is an error to it
				if !strings.Contains(line, "with owner name 'ehasm'") {
					require.Equal(t, "No errors", line, name)
				}
			}
			for loader, exe := range loaders {
				requireReadOnly(t, runTool(t, exe, path, "maps"), path, name+", "+loader)
			}
			runTool(t, "strip", path) // and again
		}
	}
}

// requireReadOnly wants the answer of testdata/load.c, and that no mapping of path is writable.
func requireReadOnly(t *testing.T, out, path, what string) {
	t.Helper()
	answer, maps := "", []string{}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); fields[len(fields)-1] == path {
			maps = append(maps, fields[1])
		} else {
			answer += line
		}
	}
	requireLoads(t, answer)
	require.Equal(t, []string{"r--p", "r-xp", "r--p"}, maps, what)
}
